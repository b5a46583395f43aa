"""Finds and removes fields that a kind does not have."""

from collections.abc import Iterator
from typing import Any

from aliquot.embedded.api.schema.table import MESSAGES, Cardinality, Field, Message

_TYPE = ("apiVersion", "kind")


def unknown_fields(obj: Any, message: Message) -> list[str]:
    """The paths of unknown fields, such as `spec.containers[0].imagee`."""
    if not isinstance(obj, dict):
        return []
    known = {name: value for name, value in obj.items() if name not in _TYPE}
    return list(_below(known, message, ""))


def _below(obj: Any, message: Message, path: str) -> Iterator[str]:
    if not isinstance(obj, dict):
        return
    for name, value in obj.items():
        here = f"{path}.{name}" if path else name
        field = message.fields.get(name)
        if field is None:
            yield here
        elif field.type in MESSAGES:
            yield from _inside(value, field, here)


def _inside(value: Any, field: Field, path: str) -> Iterator[str]:
    message = MESSAGES[field.type]
    if field.shape is Cardinality.LIST and isinstance(value, list):
        for position, item in enumerate(value):
            yield from _below(item, message, f"{path}[{position}]")
    elif field.shape is Cardinality.MAP and isinstance(value, dict):
        for key, item in value.items():
            yield from _below(item, message, f"{path}.{key}")
    elif field.shape is Cardinality.ONE:
        yield from _below(value, message, path)


def without_unknown(obj: Any, message: Message) -> Any:
    """The object without unknown fields."""
    if not isinstance(obj, dict):
        return obj
    kept = {name: value for name, value in obj.items() if name in message.fields or name in _TYPE}
    return {name: _kept(value, message.fields.get(name)) for name, value in kept.items()}


def _kept(value: Any, field: Field | None) -> Any:
    message = MESSAGES.get(field.type) if field is not None else None
    if field is None or message is None:
        return value
    if field.shape is Cardinality.LIST and isinstance(value, list):
        return [without_unknown(item, message) for item in value]
    if field.shape is Cardinality.MAP and isinstance(value, dict):
        return {key: without_unknown(item, message) for key, item in value.items()}
    return without_unknown(value, message)
