"""What can go wrong between us and an API server.

KubeError
├── ApiError                the server answered with a Status: nothing was done
│   ├── BadRequest          400: it cannot be read, or asks for what cannot be
│   ├── Unauthorized        401: the server does not know us
│   ├── Forbidden           403: it knows us, and we may not; or a policy says no
│   ├── NotFound            404
│   ├── Conflict            409: somebody was faster
│   │   └── AlreadyExists   409 at a creation
│   ├── Gone                410: the resourceVersion is too old, list again
│   ├── Invalid             422: the object breaks a rule, or a policy says no
│   ├── TooManyRequests     429: later; of an eviction: a disruption budget says no
│   └── (others)            by `code`
├── Unreadable              the server answered with something that we cannot read
├── NotSent                 the server was not reached: nothing was done
└── NoAnswer                it was sent and no answer came, or the server failed on the way: it may have been done
"""

from aliquot.errors import AliquotError


class KubeError(AliquotError):
    retry_after: float | None = None
    """After how many seconds the server wants to be asked again, if it said so."""


class ApiError(KubeError):
    """The API server's own refusal; `str()` is its message."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message or f"the API server answered {code} {reason}")
        self.code = code
        self.reason = reason


class BadRequest(ApiError):
    pass


class Unauthorized(ApiError):
    pass


class Forbidden(ApiError):
    pass


class NotFound(ApiError):
    pass


class Conflict(ApiError):
    pass


class AlreadyExists(Conflict):
    pass


class Gone(ApiError):
    pass


class Invalid(ApiError):
    pass


class TooManyRequests(ApiError):
    pass


class Unreadable(KubeError):
    pass


class NotSent(KubeError):
    pass


class NoAnswer(KubeError):
    pass


_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_FIRST_SERVER_FAULT = 500


def answered(code: int, reason: str, message: str, retry_after: float | None = None) -> KubeError:
    """The error for an answer. A 5xx may come after the write was made, so it tells as little as silence."""
    error = _answered(code, reason, message)
    error.retry_after = retry_after
    return error


def _answered(code: int, reason: str, message: str) -> KubeError:
    if code >= _FIRST_SERVER_FAULT:
        return NoAnswer(f"the API server answered {code}: {message or reason}")
    if reason == "AlreadyExists":
        return AlreadyExists(code, reason, message)
    return _BY_CODE.get(code, ApiError)(code, reason, message)
