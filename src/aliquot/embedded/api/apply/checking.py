"""Checks an apply request first, with the real server's messages and codes."""

from collections.abc import Iterator
from typing import Any

from aliquot.embedded.api.apply import paths
from aliquot.embedded.api.apply.field_kinds import FieldKind, element, item_node, message_in, node_of
from aliquot.embedded.api.objects import Object, dig, text_at
from aliquot.embedded.api.resources import ServedResource
from aliquot.embedded.api.schema.table import MESSAGES, Cardinality, Field, Message, message_of
from aliquot.embedded.api.statuses import BadRequest, FieldError, Invalid, Unexplained, forbidden, invalid, required

_LONGEST_MANAGER = 128


def check_options(manager: str, force: bool, is_apply: bool) -> None:
    """Raises Invalid."""
    error: FieldError | None = None
    if len(manager.encode()) > _LONGEST_MANAGER:
        error = FieldError("fieldManager", "FieldValueTooLong", "Too long: may not be more than 128 bytes")
    elif unprintable := next((letter for letter in manager if not letter.isprintable()), ""):
        place = len(manager.partition(unprintable)[0].encode())
        error = invalid("fieldManager", manager, f"invalid character U+{ord(unprintable):04X} (at position {place})")
    elif force and not is_apply:
        error = forbidden("force", "may not be specified for non-apply patch")
    elif is_apply and not manager:
        error = required("fieldManager", "is required for apply patch")
    if error is not None:
        raise Invalid("meta.k8s.io", "PatchOptions", "", [error])


def check_wish(resource: ServedResource, namespace: str, name: str, body: Any) -> Object:
    """The applied object. Raises BadRequest, Unexplained."""
    if not isinstance(body, dict):
        raise BadRequest("error decoding patch: the body is not an object")
    kind, version = text_at(body, "kind"), text_at(body, "apiVersion")
    group, _, number = version.rpartition("/")
    if (kind, version) != (resource.kind, resource.api_version):
        raise BadRequest(f"invalid object type: {group}/{number}, Kind={kind}")
    if dig(body, "metadata", "managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    named, placed = text_at(body, "metadata", "name"), text_at(body, "metadata", "namespace")
    if message := message_of(resource.group, resource.version, resource.kind):
        problems = list(_problems({key: body[key] for key in body if key not in ("apiVersion", "kind")}, message, ()))
        if problems:
            listed = problems[0] if len(problems) == 1 else "\n  ".join(["errors:", *problems])
            what = f"{placed}/{named}; {group}/{number}, Kind={kind}"
            raise Unexplained(f"failed to create typed patch object ({what}): {listed}")
    if named and named != name:
        raise BadRequest(f"the name of the object ({named}) does not match the name on the URL ({name})")
    if placed and placed != namespace:
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    return body


def refuse_nameless(name: str, body: Object) -> None:
    """Raises BadRequest if a new object has no name."""
    if not text_at(body, "metadata", "name"):
        raise BadRequest(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")


def _problems(obj: Any, message: Message, at: paths.Path) -> Iterator[str]:
    if not isinstance(obj, dict):
        return
    known = {name: value for name, value in obj.items() if name in message.fields}
    for name, value in known.items():
        yield from _field_problems(value, message.fields[name], (*at, f"f:{name}"))
    for name in obj.keys() - known.keys():
        yield f"{paths.text((*at, f'f:{name}'))}: field not declared in schema"


def _field_problems(value: Any, field: Field, at: paths.Path) -> Iterator[str]:
    if field.shape is Cardinality.LIST and isinstance(value, list):
        yield from _list_problems(value, field, at)
    elif field.type in MESSAGES and isinstance(value, dict):
        if field.shape is Cardinality.ONE:
            yield from _problems(value, message_in(field), at)
        else:
            for key, item in value.items():
                yield from _problems(item, message_in(field), (*at, f"f:{key}"))


def _list_problems(value: list[Any], field: Field, at: paths.Path) -> Iterator[str]:
    seen = set()
    for position, item in enumerate(value):
        step = f"i:{position}"
        if node_of(field) in (FieldKind.KEYED, FieldKind.SET):
            step = element(field, item)
            if step in seen:
                yield f"{paths.text(at)}: duplicate entries for key {paths.text((step,))}"
                continue
            seen.add(step)
        if item_node(field) is not FieldKind.LEAF or field.type in MESSAGES:
            yield from _problems(item, message_in(field), (*at, step))
