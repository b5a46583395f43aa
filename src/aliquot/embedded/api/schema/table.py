"""Reads `kinds.txt`: every message, and its fields by name and by number."""

import re
from dataclasses import dataclass, field
from enum import Enum
from importlib.resources import files

_LINE = re.compile(r" (\d+) (\w+) (\S+)")
_INLINE = re.compile(r" (\d+) \+(\S+)")


class Cardinality(Enum):
    ONE = "one"
    LIST = "list"
    MAP = "map"


@dataclass(frozen=True, slots=True)
class Field:
    number: int
    name: str
    """"" if the fields of its message are inlined."""
    type: str
    """A message of the table, or a plain type."""
    shape: Cardinality = Cardinality.ONE
    nullable: bool = False
    """Whether 0, false or an empty string differs from a missing field."""


@dataclass(slots=True)
class Message:
    name: str
    by_number: dict[int, Field] = field(default_factory=dict)
    fields: dict[str, Field] = field(default_factory=dict)
    """By name, with the fields of inlined messages."""


def _read(text: str) -> dict[str, Message]:
    messages: dict[str, Message] = {}
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        if not line.startswith(" "):
            current = messages[line] = Message(line)
            continue
        found = _field(line)
        current.by_number[found.number] = found
    for message in messages.values():
        message.fields = _flat(messages, message)
    return messages


def _field(line: str) -> Field:
    if inline := _INLINE.fullmatch(line):
        return Field(int(inline[1]), "", inline[2])
    match = _LINE.fullmatch(line)
    assert match is not None, line
    number, name, kind = match.groups()
    shape = {"[": Cardinality.LIST, "{": Cardinality.MAP}.get(kind[0], Cardinality.ONE)
    return Field(int(number), name, kind.strip("[]{}?"), shape, kind.endswith("?"))


def _flat(messages: dict[str, Message], message: Message) -> dict[str, Field]:
    found: dict[str, Field] = {}
    for held in message.by_number.values():
        found |= {held.name: held} if held.name else _flat(messages, messages[held.type])
    return found


MESSAGES = _read((files(__package__) / "kinds.txt").read_text())

_PACKAGES = {"": "core", "rbac.authorization.k8s.io": "rbac"}


def message_of(group: str, version: str, kind: str) -> Message | None:
    """The message of a kind; None if the table lacks it."""
    package = _PACKAGES.get(group, group.partition(".")[0])
    return MESSAGES.get(f"{package}.{version}.{kind}")
