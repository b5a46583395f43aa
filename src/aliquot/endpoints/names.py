"""Node names by the thousand, kept as the bytes in which they arrive.

A kube-scheduler call about 5,000 nodes is mostly their names, and so is the answer. Here names become strings only when
a caller needs them.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar, overload

import msgspec
import numpy as np

from aliquot.engine import Bools, Fleet, Ints, NameBlock, NameTable
from aliquot.errors import BadInput

_Value = TypeVar("_Value")

_QUOTE, _SPACE, _ZERO = b'" 0'
_FIRST = 2
"""The offset of the first name, after a bracket and a quote; also the distance from the last name to the end."""
_AROUND = 3
"""Two quotes and a comma: the distance from a name to the next."""


class BadName(BadInput):
    """A string that cannot be a node's name."""


class Names(Sequence[str]):
    """A JSON array with every name unescaped, and commas only between names."""

    def __init__(self, array: bytes, lengths: Ints) -> None:
        """`array` is compact JSON, with names of these lengths in bytes; see `read` and `of`."""
        self._array = array
        self._lengths = lengths
        self._found: tuple[NameTable, Ints] | None = None

    @classmethod
    def read(cls, array: bytes, again: "Names | None" = None) -> "Names":
        """Decode JSON of any form; `again` is the value to reuse if the bytes are the same. Raises BadName,
        msgspec.DecodeError, UnicodeDecodeError."""
        if again is not None and again._array == array:
            return again
        lengths = _lengths(array) if array.isascii() else None
        return cls(array, lengths) if lengths is not None else cls.of(msgspec.json.decode(array, type=list[str]))

    @classmethod
    def of(cls, names: Sequence[str]) -> "Names":
        """Raises BadName."""
        array = msgspec.json.encode(names)
        lengths = _lengths(array)
        if lengths is None:
            odd = next(name for name in names if "," in name or b"\\" in msgspec.json.encode(name))
            raise BadName(f"{odd[:64]!r} is not a valid node name")
        return cls(array, lengths)

    def columns(self, fleet: Fleet) -> Ints:
        """The fleet column of each name, -1 for unknown nodes."""
        if self._found is None or self._found[0] is not fleet.table:
            starts = np.cumsum(self._lengths + _AROUND) - self._lengths - _AROUND + _FIRST
            self._found = fleet.table, fleet.table.find(NameBlock(self._array, starts, self._lengths))
        return self._found[1]

    def picked(self, mask: Bools) -> "Names":
        """Select names by a mask. Known columns stay known."""
        if mask.all():
            return self
        behind_bracket = np.frombuffer(self._array, np.uint8, offset=1)
        chosen = behind_bracket[np.repeat(mask, self._lengths + _AROUND)].tobytes()
        some = Names(b"[%b]" % chosen[:-1], self._lengths[mask])
        if self._found is not None:
            some._found = self._found[0], self._found[1][mask]
        return some

    # -- as JSON

    @property
    def json(self) -> msgspec.Raw:
        return msgspec.Raw(self._array)

    def each_with(self, text: str) -> bytes:
        """The members of a JSON object that maps every name to the same text."""
        value = b":" + msgspec.json.encode(text)
        return self._array[1:-1].replace(b",", value + b",") + (value if len(self) else b"")

    def scored(self, scores: Ints) -> msgspec.Raw:
        """A HostPriorityList. A space pads scores with fewer digits than others; no score has three."""
        if not len(self):
            return msgspec.Raw(b"[]")
        digits = 2 if scores.max() >= 10 else 1
        before, after = b'{"Host":', b',"Score":%b}' % bytes(digits)
        items = self._array[1:-1].replace(b",", b"%b,%b" % (after, before))
        text = bytearray(b"[%b%b%b]" % (before, items, after))
        into = np.frombuffer(text, np.uint8)
        ones = np.cumsum(self._lengths + len(before) + len(after) + _AROUND) - _FIRST
        into[ones] = _ZERO + scores % 10
        if digits > 1:
            into[ones - 1] = np.where(scores >= 10, _ZERO + scores // 10, _SPACE)
        return msgspec.Raw(text)

    # -- as strings

    @cached_property
    def _texts(self) -> list[str]:
        return msgspec.json.decode(self._array, type=list[str])

    def __len__(self) -> int:
        return len(self._lengths)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        return self._texts[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)


class Grouped(Mapping[str, _Value]):
    """A mapping from names, most of them with the same few values."""

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
        return msgspec.Raw(b"{%b}" % b",".join(names.each_with(text) for names, text in self.groups))


def written(value: object) -> msgspec.Raw:
    """Encode our types for msgspec, which does not know them."""
    if isinstance(value, Names | Texts):
        return value.json
    raise NotImplementedError


def _lengths(array: bytes) -> Ints | None:
    """The lengths of strings in an array without spaces and escapes; None for other arrays, or with commas in
    strings."""
    if b"\\" in array:
        return None
    text = np.frombuffer(array, np.uint8)
    quotes = np.flatnonzero(text == _QUOTE)
    starts, ends = quotes[0::2] + 1, quotes[1::2]
    if not len(ends) or len(starts) != len(ends):
        return np.zeros(0, np.int64) if array == b"[]" else None
    is_plain = (
        starts[0] == _FIRST
        and ends[-1] == len(text) - _FIRST
        and (starts[1:] - ends[:-1] == _AROUND).all()
        and array.count(b",") == len(ends) - 1
        and text.min() >= _SPACE
    )
    return ends - starts if is_plain else None
