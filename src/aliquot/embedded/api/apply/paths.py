"""Sets of field paths: of an object, and in the `fieldsV1` notation of `metadata.managedFields`."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import msgspec

from aliquot.embedded.api.apply.field_kinds import FieldKind, element, item_node, message_in, node_of
from aliquot.embedded.api.objects import Object
from aliquot.embedded.api.schema.table import Field, Message

Path: TypeAlias = tuple[str, ...]
"""Steps as `fieldsV1` writes them: `f:spec`, `k:{"name":"main"}`, `v:"a"`, `i:0`."""
FieldSet: TypeAlias = frozenset[Path]

WHOLE = object()
"""The value of a map or list whose items have paths of their own."""
_SELF = "."
_SYSTEM = (
    *("name", "namespace", "uid", "resourceVersion", "generation"),
    *("creationTimestamp", "selfLink", "managedFields"),
)
_NEVER_ABSENT = ("containers",)
"""Lists that even an empty object has, so they do not count as a field."""


def wished(config: Object, message: Message) -> FieldSet:
    """The paths that an apply names and will own."""
    return frozenset(path for path, value in _walk(_own(config), message, ()) if value is not WHOLE)


def held(obj: Object, message: Message) -> dict[Path, Any]:
    """Every path of an object with its value, for comparison."""
    return dict(_walk(_own(obj), message, ()))


def changed(before: dict[Path, Any], after: dict[Path, Any]) -> tuple[FieldSet, FieldSet]:
    """The changed paths and the removed paths."""
    new = frozenset(path for path, value in after.items() if path not in before or _differ(before[path], value))
    return new, frozenset(before.keys() - after.keys())


def _differ(one: Any, other: Any) -> bool:
    return one is not WHOLE and other is not WHOLE and one != other


def _own(obj: Object) -> Object:
    """The object without fields that only the server sets."""
    metadata = {name: value for name, value in (obj.get("metadata") or {}).items() if name not in _SYSTEM}
    rest = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata")}
    return {**rest, "metadata": metadata} if metadata else rest


def _walk(obj: Object, message: Message, at: Path) -> Iterator[tuple[Path, Any]]:
    for name, value in obj.items():
        yield from _field(value, message.fields.get(name), (*at, f"f:{name}"))


def _field(value: Any, field: Field | None, at: Path) -> Iterator[tuple[Path, Any]]:
    node = node_of(field)
    if field is None or node is FieldKind.LEAF or not value or not isinstance(value, dict | list):
        if value != [] or node is FieldKind.LEAF:
            yield at, value
    elif node is FieldKind.STRUCT and isinstance(value, dict):
        yield from _walk(value, message_in(field), at)
    else:
        if at[-1].removeprefix("f:") not in _NEVER_ABSENT:
            yield at, WHOLE
        for step, item in _items(value, field):
            yield from _item(item, field, (*at, step))


def _items(value: Any, field: Field) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((f"f:{key}", item) for key, item in value.items())
    return ((element(field, item), item) for item in value)


def _item(item: Any, field: Field, at: Path) -> Iterator[tuple[Path, Any]]:
    if item_node(field) is FieldKind.LEAF or not isinstance(item, dict):
        yield at, item
    else:
        yield at, None
        yield from _walk(item, message_in(field), at)


def encoded(paths: FieldSet) -> Object:
    """`fieldsV1`."""
    tree = _tree(paths)
    return _nested(tree)


def _tree(paths: Iterable[Path]) -> Object:
    """Every step with the steps below it; `.` marks the end of a path."""
    tree: Object = {}
    for path in paths:
        place = tree
        for step in path:
            place = place.setdefault(step, {})
        place[_SELF] = {}
    return tree


def _nested(tree: Object) -> Object:
    shown = {}
    for step in sorted(tree):
        below = tree[step]
        shown[step] = {} if below.keys() <= {_SELF} else _nested(below)
    return shown


def decoded(fields: Object, at: Path = ()) -> FieldSet:
    found: set[Path] = set()
    for step, below in fields.items():
        if step == _SELF:
            found.add(at)
        elif below:
            found |= decoded(below, (*at, step))
        else:
            found.add((*at, step))
    return frozenset(found)


def in_order(paths: Iterable[Path]) -> list[Path]:
    """The fields of each object by name, before those of the objects in it."""
    return list(_listed(_tree(paths), ()))


def _listed(tree: Object, at: Path) -> Iterator[Path]:
    steps = sorted(step for step in tree if step != _SELF)
    yield from ((*at, step) for step in steps if _SELF in tree[step])
    for step in steps:
        yield from _listed(tree[step], (*at, step))


def text(path: Path) -> str:
    """The path for people: `.spec.containers[name="main"].image`."""
    return "".join(map(_step_text, path))


def _step_text(step: str) -> str:
    kind, _, rest = step.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "v":
        return f"[={rest}]"
    if kind == "i":
        return f"[{rest}]"
    keys = msgspec.json.decode(rest)
    listed = ",".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in keys.items())
    return f"[{listed}]"
