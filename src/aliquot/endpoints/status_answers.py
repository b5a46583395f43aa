"""Errors as Kubernetes API servers answer them: `Status` objects."""

from aliquot.apiserver.answers import encode
from aliquot.apiserver.objects import dig
from aliquot.apiserver.statuses import StatusError, Unavailable
from aliquot.endpoints import asgi


def status_answer(error: StatusError, *headers: tuple[bytes, bytes]) -> asgi.Response:
    seconds = dig(error.details, "retryAfterSeconds")
    retry = ((b"retry-after", str(seconds).encode()),) if seconds is not None else ()
    return asgi.Response(encode(error.status()) + b"\n", error.code, headers=(*retry, *headers))


def unavailable(why: str) -> asgi.Response:
    return status_answer(Unavailable(why))
