"""Thousands of node names on their way through a door: kept as the bytes in which they came.

What kube-scheduler sends about 5,000 nodes is mostly their names, and so is the answer. Here they become strings only
where somebody asks for one.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar, overload

import msgspec
import numpy as np

from aliquot.engine import Bools, Fleet, Ints, NameBlock, NameTable
from aliquot.errors import BadInput

_Value = TypeVar("_Value")

_QUOTE, _COMMA, _FIRST_VISIBLE = b'",'[0], b'",'[1], b" "[0]
_BETWEEN = 2
"""From a closing quote to the next opening one."""
_AROUND = 3
"""Two quotes and a comma."""
_ZERO = b"0"[0]
_NOTHING = b"\0"
"""Stands in no name."""


class BadName(BadInput):
    """What no node can be called."""


class Names(Sequence[str]):
    """Names as an array of JSON. Raises BadName for those that JSON can only write with a backslash."""

    def __init__(self, array: bytes) -> None:
        """`array` is what JSON's encoders write without need for spaces or escapes; see `read` and `of`."""
        self._array = array
        self._found: tuple[NameTable, Ints] | None = None
        self._bytes = np.frombuffer(array, np.uint8)
        quotes = np.flatnonzero(self._bytes == _QUOTE)
        self._starts, self._ends = quotes[0::2] + 1, quotes[1::2]

    @classmethod
    def read(cls, array: bytes, again: "Names | None" = None) -> "Names":
        """From JSON of whatever form; `again` are those that are likely to come. Raises msgspec.DecodeError,
        UnicodeDecodeError."""
        if again is not None and again._array == array:
            return again
        if array.isascii() and b"\\" not in array:
            names = cls(array)
            if names._is_plain():
                return names
        return cls.of(msgspec.json.decode(array, type=list[str]))

    @classmethod
    def of(cls, names: Sequence[str]) -> "Names":
        array = msgspec.json.encode(names)
        if b"\\" in array:
            odd = next(name for name in names if b"\\" in msgspec.json.encode(name))
            raise BadName(f"{odd[:64]!r} is no name of a node")
        return cls(array)

    def _is_plain(self) -> bool:
        """Strings with one comma between them, and nothing else."""
        text, between = self._bytes, self._ends[:-1]
        if not len(self._ends) or len(self._starts) != len(self._ends):
            return self._array == b"[]"
        return bool(
            self._starts[0] == _BETWEEN
            and self._ends[-1] == len(text) - _BETWEEN
            and (self._starts[1:] - between == _AROUND).all()
            and (text[between + 1] == _COMMA).all()
            and text.min() >= _FIRST_VISIBLE
        )

    def columns(self, fleet: Fleet) -> Ints:
        """Of each, -1 for those that are not there."""
        if self._found is None or self._found[0] is not fleet.table:
            block = NameBlock(self._array, self._starts, self._ends - self._starts)
            self._found = fleet.table, fleet.table.find(block)
        return self._found[1]

    def picked(self, mask: Bools) -> "Names":
        """Some of them; where they are is known, if it was of all."""
        if mask.all():
            return self
        chosen = self._bytes[1:][np.repeat(mask, self._ends - self._starts + _AROUND)].tobytes()
        some = Names(b"[" + chosen[:-1] + b"]")
        if self._found is not None:
            some._found = self._found[0], self._found[1][mask]
        return some

    # -- as JSON

    @property
    def json(self) -> msgspec.Raw:
        return msgspec.Raw(self._array)

    def each_with(self, text: str) -> bytes:
        """The inside of an object in which every name has the same text."""
        value = b":" + msgspec.json.encode(text)
        return self._array[1:-1].replace(b'",', b'"' + value + b",") + (value if len(self) else b"")

    def scored(self, scores: Ints) -> msgspec.Raw:
        """A HostPriorityList; scores are of one or two digits."""
        if not len(self):
            return msgspec.Raw(b"[]")
        before, after = b'{"Host":', b',"Score":' + 2 * _NOTHING + b"}"
        items = self._array[1:-1].replace(b'",', b'"' + after + b"," + before)
        text = np.frombuffer(bytearray(b"[" + before + items + after + b"]"), np.uint8)
        ones = np.cumsum(self._ends - self._starts + len(before) + len(after) + _AROUND) - 2
        text[ones] = _ZERO + scores % 10
        has_tens = scores >= 10
        text[ones[has_tens] - 1] = _ZERO + scores[has_tens] // 10
        return msgspec.Raw(text.tobytes().replace(_NOTHING, b""))

    # -- as strings

    @cached_property
    def _texts(self) -> list[str]:
        return msgspec.json.decode(self._array, type=list[str])

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        return self._texts[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)


class Grouped(Mapping[str, _Value]):
    """A mapping from names, most of which have the same few values."""

    def __init__(self, groups: Sequence[tuple[Names, _Value]] = ()) -> None:
        self.groups = groups

    @cached_property
    def _each(self) -> dict[str, _Value]:
        return {name: value for names, value in self.groups for name in names}

    def __len__(self) -> int:
        return sum(len(names) for names, _ in self.groups)

    def __getitem__(self, name: str) -> _Value:
        return self._each[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._each)


class Texts(Grouped[str]):
    @cached_property
    def json(self) -> msgspec.Raw:
        return msgspec.Raw(b"{" + b",".join(names.each_with(text) for names, text in self.groups) + b"}")


def written(value: object) -> msgspec.Raw:
    """For msgspec, which does not know how to write these."""
    if isinstance(value, Names | Texts):
        return value.json
    raise NotImplementedError
