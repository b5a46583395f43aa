"""How apply sees a field: as one value, as a struct, as a map, or as a list whose items have an identity."""

from enum import Enum
from typing import Any

import msgspec

from aliquot.embedded.api.schema.table import MESSAGES, Cardinality, Field, Message

_KEY_DEFAULTS = {"protocol": "TCP"}


class FieldKind(Enum):
    LEAF = "leaf"
    STRUCT = "struct"
    MAP = "map"
    KEYED = "keyed"
    SET = "set"


def node_of(field: Field | None) -> FieldKind:
    """An unknown field is a leaf."""
    if field is None or field.atomic:
        return FieldKind.LEAF
    if field.shape is Cardinality.LIST:
        return FieldKind.LEAF if field.keys is None else FieldKind.KEYED if field.keys else FieldKind.SET
    if field.shape is Cardinality.MAP:
        return FieldKind.MAP
    return item_node(field)


def item_node(field: Field) -> FieldKind:
    """The kind of the items of a list or map, or of the field itself."""
    message = MESSAGES.get(field.type)
    return FieldKind.LEAF if message is None or message.atomic else FieldKind.STRUCT


def message_in(field: Field) -> Message:
    return MESSAGES[field.type]


def element(field: Field, item: Any) -> str:
    """The item's path step in `fieldsV1` notation. A missing key has its default value."""
    if not field.keys:
        return f"v:{_text(item)}"
    held = item if isinstance(item, dict) else {}
    known = message_in(field).fields
    keys = {key: held.get(key, _KEY_DEFAULTS.get(key, 0 if known[key].type == "int" else "")) for key in field.keys}
    return f"k:{_text(dict(sorted(keys.items())))}"


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
