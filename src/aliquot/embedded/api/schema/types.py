"""Finds a field whose value has another type than its kind says."""

from collections.abc import Iterator
from typing import Any

from aliquot.embedded.api.schema.table import MESSAGES, Cardinality, Field, Message

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "bool": (bool,),
    "bytes": (str,),
    "Time": (str,),
    "MicroTime": (str,),
    "Quantity": (str, int, float),
    "IntOrString": (int, str),
    "ExtraValue": (list,),
    "FieldsV1": (dict,),
}
_JSON_NAMES = {bool: "bool", str: "string", int: "number", float: "number", dict: "object", list: "array"}


def wrong_type(obj: Any, message: Message) -> str:
    """What is wrong with the first such field, much as Go says it; "" if there is none."""
    return next(_below(obj, message, ""), "")


def _below(obj: Any, message: Message, path: str) -> Iterator[str]:
    if not isinstance(obj, dict):
        yield _unfit(obj, path, "object")
        return
    for name, value in obj.items():
        field = message.fields.get(name)
        if field is not None and value is not None:
            yield from _inside(value, field, f"{path}.{name}" if path else name)


def _inside(value: Any, field: Field, path: str) -> Iterator[str]:
    if field.shape is Cardinality.ONE:
        yield from _one(value, field.type, path)
    elif field.shape is Cardinality.LIST:
        if isinstance(value, list):
            for position, item in enumerate(value):
                yield from _one(item, field.type, f"{path}[{position}]")
        else:
            yield _unfit(value, path, "array")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _one(item, field.type, f"{path}.{key}")
    else:
        yield _unfit(value, path, "object")


def _one(value: Any, kind: str, path: str) -> Iterator[str]:
    if kind in MESSAGES:
        yield from _below(value, MESSAGES[kind], path)
    elif not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "bool"):
        yield _unfit(value, path, kind)


def _unfit(value: Any, path: str, kind: str) -> str:
    return f"json: cannot unmarshal {_JSON_NAMES.get(type(value), 'null')} into field {path} of type {kind}"
