"""What can go wrong between us and an API server.

KubeError
├── ApiError                the server answered with a Status: nothing was done
│   ├── BadRequest          400: the request is malformed or impossible
│   ├── Unauthorized        401: the server does not know us
│   ├── Forbidden           403: RBAC or a policy forbids it
│   ├── NotFound            404
│   ├── Conflict            409: somebody else wrote first
│   │   └── AlreadyExists   409 on create
│   ├── Gone                410: the resourceVersion is too old; list again
│   ├── Invalid             422: the object is invalid, or a policy refuses it
│   ├── TooManyRequests     429: retry later; for an eviction: a disruption budget forbids it
│   └── (others)            by `code`
├── Unreadable              the server's answer cannot be decoded
├── NotSent                 the server was not reached: nothing was done
└── NoAnswer                the request was sent and got no answer or a 5xx: it may have been done
"""

from aliquot.errors import AliquotError


class KubeError(AliquotError):
    retry_after: float | None = None
    """Seconds after which the server asks us to retry, if it says so."""


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
    """The error for an answer. A 5xx can follow a write that was made, so it counts as no answer."""
    error = _answered(code, reason, message)
    error.retry_after = retry_after
    return error


def _answered(code: int, reason: str, message: str) -> KubeError:
    if code >= _FIRST_SERVER_FAULT:
        return NoAnswer(f"the API server answered {code}: {message or reason}")
    if reason == "AlreadyExists":
        return AlreadyExists(code, reason, message)
    return _BY_CODE.get(code, ApiError)(code, reason, message)
