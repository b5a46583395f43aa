"""Finds thousands of names at once, by their bytes, without creating strings and with few memory accesses.

Looking up a name in a dict costs a string, its hash, and several cache misses. Here names are words of eight bytes in
arrays, and every step is one pass over all of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aliquot.engine.arrays import Ints

_Words = NDArray[np.uint64]

_WORD = 8
_SLOTS_PER_NAME = 8
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_KEEP = np.array([(1 << (_WORD * count)) - 1 for count in range(_WORD + 1)], np.uint64)
"""Masks that keep the first bytes of a word, by their number."""


@dataclass(frozen=True)
class NameBlock:
    """Many names in one text, each with its position and its length in bytes."""

    text: bytes
    starts: Ints
    lengths: Ints

    @classmethod
    def of(cls, names: Iterable[str]) -> "NameBlock":
        encoded = [name.encode() for name in names]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return cls(b"".join(encoded), np.cumsum(lengths) - lengths, lengths)

    def words(self, count: int) -> list[_Words]:
        """The first words of each name. Bytes after its end are 0."""
        padded = self.text + bytes(_WORD)
        at_any_place: _Words = np.ndarray(len(self.text) + 1, np.uint64, padded, strides=(1,))
        shortest = int(self.lengths.min(initial=len(self.text)))
        words = []
        for before in range(0, count * _WORD, _WORD):
            places = self.starts + before if before <= shortest else np.minimum(self.starts + before, len(self.text))
            word = at_any_place[places]
            if before + _WORD > shortest:
                word &= _KEEP[np.maximum(np.minimum(self.lengths - before, _WORD), 0)]
            words.append(word)
        return words


class NameTable:
    """Finds the position of a name among `names`, which must be distinct. Empty names are never found."""

    def __init__(self, names: Sequence[str]) -> None:
        block = NameBlock.of(names)
        self._count = -(-int(block.lengths.max(initial=0)) // _WORD)
        absent = np.array([-1])
        self._lengths = np.concatenate([np.where(block.lengths, block.lengths, absent), absent])
        self._words = [np.append(words, np.uint64(0)) for words in block.words(self._count)]
        self._bits = (_SLOTS_PER_NAME * len(names) + 1).bit_length()
        self._slots = np.full(1 << self._bits, -1, np.int32)
        self._fill(np.flatnonzero(block.lengths), self._first_slots([words[:-1] for words in self._words], len(names)))

    def find(self, block: NameBlock) -> Ints:
        """The position of each name, -1 if it is not in the table."""
        words = block.words(self._count)
        slots = self._first_slots(words, len(block.lengths))
        places = self._slots[slots].astype(np.int64)
        rest = np.flatnonzero(~self._match(places, words, block.lengths) & (places >= 0))
        while len(rest):  # another name has this slot: look at the next one
            slots[rest] = (slots[rest] + 1) % len(self._slots)
            places[rest] = self._slots[slots[rest]]
            wrong = ~self._match(places[rest], [each[rest] for each in words], block.lengths[rest])
            rest = rest[wrong & (places[rest] >= 0)]
        return places

    def _match(self, places: Ints, words: Sequence[_Words], lengths: Ints) -> NDArray[np.bool_]:
        same: NDArray[np.bool_] = self._lengths[places] == lengths
        for own, asked in zip(self._words, words, strict=True):
            same &= own[places] == asked
        return same

    def _fill(self, places: Ints, slots: Ints) -> None:
        while len(places):
            free = np.flatnonzero(self._slots[slots[places]] < 0)
            wanted, first = np.unique(slots[places[free]], return_index=True)
            self._slots[wanted] = places[free[first]]
            places = np.delete(places, free[first])
            slots[places] = (slots[places] + 1) % len(self._slots)

    def _first_slots(self, words: Sequence[_Words], count: int) -> Ints:
        mixed = np.zeros(count, np.uint64)
        for each in words:
            mixed ^= mixed >> _SHIFT
            mixed ^= each
            mixed *= _FACTOR
        return (mixed >> np.uint64(64 - self._bits)).astype(np.int64)
