"""How apply sees a field: as one value, as a struct, as a map, or as a list whose items have an identity."""

from enum import Enum
from typing import Any

import msgspec

from aliquot.embedded.api.schema.table import MESSAGES, Field, Message, Shape

_KEY_DEFAULTS = {"protocol": "TCP"}


class Node(Enum):
    LEAF = "leaf"
    STRUCT = "struct"
    MAP = "map"
    KEYED = "keyed"
    SET = "set"


def node_of(field: Field | None) -> Node:
    """A field that nobody knows is one value."""
    if field is None or field.atomic:
        return Node.LEAF
    if field.shape is Shape.LIST:
        return Node.LEAF if field.keys is None else Node.KEYED if field.keys else Node.SET
    if field.shape is Shape.MAP:
        return Node.MAP
    return item_node(field)


def item_node(field: Field) -> Node:
    """Of the items of a list or a map, or of the field itself."""
    message = MESSAGES.get(field.type)
    return Node.LEAF if message is None or message.atomic else Node.STRUCT


def message_in(field: Field) -> Message:
    return MESSAGES[field.type]


def element(field: Field, item: Any) -> str:
    """The item's place in the path, as `fieldsV1` writes it; a key that it does not have is what it is by default."""
    if not field.keys:
        return f"v:{_text(item)}"
    held = item if isinstance(item, dict) else {}
    known = message_in(field).fields
    keys = {key: held.get(key, _KEY_DEFAULTS.get(key, 0 if known[key].type == "int" else "")) for key in field.keys}
    return f"k:{_text(dict(sorted(keys.items())))}"


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
