"""The API server's refusals. Each is an exception with its own `Status` object.

StatusError
├── NotFound, AlreadyExists, Conflict, Forbidden, Invalid     about one object of one resource
├── ForbiddenPath, PolicyRefusal, Unauthorized                about who sends it
├── BadRequest, ResourceExpired, ResourceVersionTooLarge       about the request
├── Busy, Unavailable, NotImplementedHere                     about the server
├── Unexplained                                               answered as if it were the server's fault
└── NotAcceptable, UnsupportedMediaType, TooLarge, MethodNotAllowed, NoSuchPath, UnprocessablePatch
"""

from dataclasses import dataclass

import msgspec

from aliquot.apiserver.objects import Object
from aliquot.errors import AliquotError


class StatusError(AliquotError):
    """A refusal with the code, reason, message and details of a real API server."""

    code = 500
    reason = "InternalError"

    def __init__(self, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def status(self) -> Object:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            **({"details": self.details} if self.details else {}),
            "code": self.code,
        }


def _about(group: str, kind: str, name: str) -> Object:
    fields = {"name": name, "group": group, "kind": kind}
    return {field: value for field, value in fields.items() if value}


def _qualified(group: str, resource: str) -> str:
    return f"{resource}.{group}" if group else resource


def _named(group: str, resource: str, name: str) -> str:
    return f'{_qualified(group, resource)} "{name}"' if name else _qualified(group, resource)


_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}


class NotFound(StatusError):
    code, reason = 404, "NotFound"

    def __init__(self, group: str, resource: str, name: str) -> None:
        super().__init__(f'{_qualified(group, resource)} "{name}" not found', _about(group, resource, name))


class NoSuchPath(StatusError):
    code, reason = 404, "NotFound"

    def __init__(self) -> None:
        super().__init__("the server could not find the requested resource", {})


class AlreadyExists(StatusError):
    code, reason = 409, "AlreadyExists"

    def __init__(self, group: str, resource: str, name: str) -> None:
        about = _about(group, resource, name)
        super().__init__(f'{_qualified(group, resource)} "{name}" already exists', about)


class Conflict(StatusError):
    code, reason = 409, "Conflict"

    def __init__(self, group: str, resource: str, name: str, why: str) -> None:
        what = f'{_qualified(group, resource)} "{name}"'
        super().__init__(f"Operation cannot be fulfilled on {what}: {why}", _about(group, resource, name))


class Forbidden(StatusError):
    code, reason = 403, "Forbidden"

    def __init__(self, group: str, resource: str, name: str, why: str) -> None:
        super().__init__(f"{_named(group, resource, name)} is forbidden: {why}", _about(group, resource, name))


class ForbiddenPath(StatusError):
    code, reason = 403, "Forbidden"

    def __init__(self, user: str, verb: str, path: str) -> None:
        super().__init__(f'forbidden: User "{user}" cannot {verb} path "{path}"', {})


class PolicyRefusal(StatusError):
    """A refusal by an admission policy, with the policy's reason."""

    def __init__(self, group: str, resource: str, name: str, why: str, reason: str) -> None:
        about = {**_about(group, resource, name), "causes": [{"message": why}]}
        super().__init__(f"{_named(group, resource, name)} is forbidden: {why}", about)
        self.reason, self.code = reason, _CODES.get(reason, 422)


class Unauthorized(StatusError):
    code, reason = 401, "Unauthorized"

    def __init__(self, message: str = "Unauthorized") -> None:
        super().__init__(message)


class BadRequest(StatusError):
    code, reason = 400, "BadRequest"


class MethodNotAllowed(StatusError):
    code, reason = 405, "MethodNotAllowed"

    def __init__(self) -> None:
        super().__init__("the server does not allow this method on the requested resource", {})


class NotAcceptable(StatusError):
    code, reason = 406, "NotAcceptable"

    def __init__(self, offered: str) -> None:
        super().__init__(f"only the following media types are accepted: {offered}", {})


class NotImplementedHere(StatusError):
    code, reason = 501, "NotImplemented"


class ResourceExpired(StatusError):
    code, reason = 410, "Expired"


class TooLarge(StatusError):
    code, reason = 413, "RequestEntityTooLarge"

    def __init__(self, limit: int) -> None:
        super().__init__(f"Request entity too large: limit is {limit}")


class UnsupportedMediaType(StatusError):
    code, reason = 415, "UnsupportedMediaType"


class Unexplained(StatusError):
    """A refusal that a real server also reports as its own error, without a reason."""

    code, reason = 500, ""


class Busy(StatusError):
    code, reason = 429, "TooManyRequests"

    def __init__(self, seconds: int) -> None:
        message = "the server has received too many requests and has asked us to try again later"
        super().__init__(message, {"retryAfterSeconds": seconds})


class Unavailable(StatusError):
    code, reason = 503, "ServiceUnavailable"

    def __init__(self, message: str) -> None:
        super().__init__(message, {"retryAfterSeconds": 1})


class ResourceVersionTooLarge(StatusError):
    code, reason = 504, "Timeout"

    def __init__(self, asked: int, current: int) -> None:
        message = f"Too large resource version: {asked}, current: {current}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        super().__init__(f"Timeout: {message}", {"causes": [cause], "retryAfterSeconds": 1})


@dataclass(frozen=True, slots=True)
class FieldError:
    """An error in a field of an object."""

    field: str
    reason: str
    problem: str

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"

    def cause(self) -> Object:
        return {"reason": self.reason, "message": self.problem, "field": self.field}


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(field, "FieldValueRequired", f"Required value{': ' if detail else ''}{detail}")


def invalid(field: str, value: object, detail: str) -> FieldError:
    shown = msgspec.json.encode(value).decode()
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {shown}: {detail}")


def duplicate(field: str, value: str) -> FieldError:
    return FieldError(field, "FieldValueDuplicate", f'Duplicate value: "{value}"')


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def unsupported(field: str, value: object, supported: tuple[str, ...]) -> FieldError:
    choices = ", ".join(f'"{choice}"' for choice in supported)
    problem = f"Unsupported value: {msgspec.json.encode(value).decode()}: supported values: {choices}"
    return FieldError(field, "FieldValueNotSupported", problem)


class Invalid(StatusError):
    code, reason = 422, "Invalid"

    def __init__(self, group: str, kind: str, name: str, errors: list[FieldError]) -> None:
        listed = str(errors[0]) if len(errors) == 1 else f"[{', '.join(str(error) for error in errors)}]"
        details = {**_about(group, kind, name), "causes": [error.cause() for error in errors]}
        super().__init__(f'{_qualified(group, kind)} "{name}" is invalid: {listed}', details)


class UnprocessablePatch(StatusError):
    """A patch that is well formed but does not apply, such as a failed `test`."""

    code, reason = 422, "Invalid"
