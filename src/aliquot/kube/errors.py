"""What can go wrong between us and an API server.

KubeError
├── ApiError            the server answered with a Status: nothing was done
│   ├── NotFound        404
│   ├── Conflict        409
│   ├── Gone            410: the resourceVersion is too old, list again
│   └── (others)        by `code`
├── Unreadable          the server answered with something that we cannot read
├── NotSent             the server was not reached: nothing was done
└── NoAnswer            it was sent and no answer came, or the server failed on the way: it may have been done
"""

from aliquot.errors import AliquotError


class KubeError(AliquotError):
    pass


class ApiError(KubeError):
    """The API server's own refusal; `str()` is its message."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message or f"the API server answered {code} {reason}")
        self.code = code
        self.reason = reason


class NotFound(ApiError):
    pass


class Conflict(ApiError):
    pass


class Gone(ApiError):
    pass


class Unreadable(KubeError):
    pass


class NotSent(KubeError):
    pass


class NoAnswer(KubeError):
    pass


_BY_CODE: dict[int, type[ApiError]] = {404: NotFound, 409: Conflict, 410: Gone}
_FIRST_SERVER_FAULT = 500


def answered(code: int, reason: str, message: str) -> KubeError:
    """The error for an answer. A 5xx may come after the write was made, so it tells as little as silence."""
    if code >= _FIRST_SERVER_FAULT:
        return NoAnswer(f"the API server answered {code}: {message or reason}")
    return _BY_CODE.get(code, ApiError)(code, reason, message)
