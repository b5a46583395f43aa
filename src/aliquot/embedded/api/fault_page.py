"""`/faults`, for people with kubectl or curl: GET tells what goes wrong, PUT changes all of it at once.

kubectl get --raw /faults
echo '{"errors": 0.1, "only": ["pods/binding"]}' | kubectl replace --raw /faults -f -
echo '{"outage": {"seconds": 10}}' | kubectl replace --raw /faults -f -
echo '{}' | kubectl replace --raw /faults -f -
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml
from aiohttp import web

from aliquot.embedded.api.faults import Faults, Outage
from aliquot.embedded.api.statuses import BadRequest, Invalid, MethodNotAllowed, invalid

PATH = "/faults"

_PLACE = re.compile(r" - at `\$\.?(.*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_KIND = "Faults"


class Document(Faults, frozen=True, kw_only=True):
    """What is told and taken. `counts` are taken too, and left alone, so that what was told can be sent back."""

    outage: Outage | None = None
    counts: dict[str, int] = msgspec.field(default_factory=dict)

    def faults(self) -> Faults:
        return Faults(**{name: getattr(self, name) for name in Faults.__struct_fields__})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.outage is not None and self.outage.how == "refuse" and self.outage.seconds is None:
            raise ValueError("outage.seconds: without it, nobody could reach this page again")


async def read(request: web.Request) -> Document | None:
    """What is wanted; None where the request only looks. Raises BadRequest, Invalid, MethodNotAllowed."""
    if request.method in ("GET", "HEAD"):
        return None
    if request.method != "PUT":
        raise MethodNotAllowed
    try:
        body = yaml.load(await request.read(), Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body of the request cannot be read: {error}") from error
    try:
        return msgspec.convert({} if body is None else body, Document)
    except msgspec.ValidationError as error:
        raise _named(body, str(error)) from error


def shown(faults: Faults, outage: Outage | None, counts: Mapping[str, int]) -> bytes:
    fields = {name: getattr(faults, name) for name in Faults.__struct_fields__}
    document = Document(**fields, outage=outage, counts=dict(sorted(counts.items())))
    return msgspec.json.format(msgspec.json.encode(document, order="deterministic")) + b"\n"


def _named(body: Any, problem: str) -> Invalid:
    """The refusal, with the field at its head."""
    place, unknown = _PLACE.search(problem), _UNKNOWN.search(problem)
    said = _PLACE.sub("", problem)
    parts = [part for part in (place and place[1], unknown and unknown[1]) if part]
    if not parts and ": " in said:
        field, said = said.split(": ", 1)
    else:
        field = ".".join(parts) or "body"
    return Invalid("", _KIND, "", [invalid(field, _value(body, field), said)])


def _value(body: Any, field: str) -> Any:
    for step in field.replace("[", ".[").split("."):
        if not isinstance(body, dict):
            return body
        body = body.get(step)
    return body
