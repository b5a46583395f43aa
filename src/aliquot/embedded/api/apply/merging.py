"""Merges an applied object into the live one, and removes what the applier no longer lists."""

from collections import deque
from typing import Any

from aliquot.embedded.api.apply.field_kinds import FieldKind, element, item_node, message_in, node_of
from aliquot.embedded.api.apply.paths import FieldSet, Path
from aliquot.embedded.api.objects import Object
from aliquot.embedded.api.schema.table import Field, Message


def merged(live: Any, config: Object, message: Message) -> Object:
    """The live object with the applied one merged in."""
    result = dict(live) if isinstance(live, dict) else {}
    for name, value in config.items():
        result[name] = _merged_field(result.get(name), value, message.fields.get(name))
    return result


def _merged_field(live: Any, wish: Any, field: Field | None) -> Any:
    node = node_of(field)
    if field is None or node is FieldKind.LEAF:
        return wish
    if node is FieldKind.STRUCT and isinstance(wish, dict):
        return merged(live, wish, message_in(field))
    if node is FieldKind.MAP and isinstance(wish, dict):
        present = live if isinstance(live, dict) else {}
        return {**present, **{key: _merged_item(present.get(key), item, field) for key, item in wish.items()}}
    return _merged_list(live if isinstance(live, list) else [], wish, field) if isinstance(wish, list) else wish


def _merged_item(live: Any, wish: Any, field: Field) -> Any:
    is_whole = item_node(field) is FieldKind.LEAF or not isinstance(wish, dict)
    return wish if is_whole else merged(live, wish, message_in(field))


def _merged_list(live: list[Any], wish: list[Any], field: Field) -> list[Any]:
    """Applied items in their order. Items that only the live list has keep their relative places."""
    present = {element(field, item): item for item in live}
    wanted = {element(field, item): item for item in wish}
    left, right, result = deque(present), deque(wanted), []
    while left or right:
        if left and left[0] not in wanted:
            result.append(present[left.popleft()])
        elif left and left[0] != next((step for step in right if step in present), None):
            left.popleft()  # it comes where the applied list has it
        else:
            step = right.popleft()
            if left and left[0] == step:
                left.popleft()
            result.append(_merged_item(present.get(step), wanted[step], field))
    return result


def without(obj: Object, gone: FieldSet, message: Message) -> Object:
    """The object without these paths and everything below. A map or list that becomes empty goes, too."""
    below: dict[str, set[Path]] = {}
    for path in gone:
        below.setdefault(path[0], set()).add(path[1:])
    result = {}
    for name, value in obj.items():
        left = _left(value, frozenset(below.get(f"f:{name}", ())), message.fields.get(name))
        if left is not None:
            result[name] = left
    return result


def _left(value: Any, gone: FieldSet, field: Field | None) -> Any:
    if not gone:
        return value
    if () in gone:
        return None
    node = node_of(field)
    if field is None or node is FieldKind.LEAF:
        return value
    if node is FieldKind.STRUCT:
        return without(value, gone, message_in(field)) or None
    is_map = node is FieldKind.MAP
    steps = [(f"f:{key}", item) for key, item in value.items()] if is_map else [(element(field, i), i) for i in value]
    kept = [(step, _left_item(item, _under(step, gone), field)) for step, item in steps]
    left = [(step, item) for step, item in kept if item is not None]
    if not left:
        return None
    return {step.removeprefix("f:"): item for step, item in left} if is_map else [item for _, item in left]


def _left_item(item: Any, gone: FieldSet, field: Field) -> Any:
    if () in gone:
        return None
    return without(item, gone, message_in(field)) if gone and item_node(field) is FieldKind.STRUCT else item


def _under(step: str, paths: FieldSet) -> FieldSet:
    return frozenset(path[1:] for path in paths if path[:1] == (step,))
