"""Places containers on connected cards, if not all cards of a group are neighbours: a search over whole sets of cards.

Each container has a list of the connected sets that it may get, and each card a list of the containers that it may end
up with. Each list shortens the others. A card that is in none of a container's sets cannot hold it, and vice versa. A
card must also not hold so little that the others cannot hold the rest; `packing` finds the weights that show this. The
shortest list is decided first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from aliquot.engine.arrays import Bools, Ints
from aliquot.engine.effort import Effort
from aliquot.engine.one_node.packing import Packed, Programme, programme_of
from aliquot.engine.one_node.puzzle import Puzzle
from aliquot.engine.topology import Wiring
from aliquot.model import Topology

_MAX_CARDS = 32
_MAX_SETS = 20_000
"""Beyond these there are too many connected sets to list."""
_WORK = tuple(million * 1_000_000 for million in (4, 8, 8, 8, 8, 16, 32))
"""List entries to look at before the search restarts in another order, and after the last of them gives up: about a
second."""
_PASS = 20_000
"""The fixed cost of one pass over all lists, in entries."""
_ENTRIES_PER_STEP = 80
"""Entries per step of the effort."""
_SLIGHT = 1e-9


def connect(puzzle: Puzzle, effort: Effort) -> Packed:
    assert puzzle.wiring is not None, "only called with a topology"
    programme, lists = programme_of(puzzle, effort), []
    if programme is None:
        return Packed(None, limited=True)
    for container in programme.order:
        sets = _listed(puzzle.wiring, puzzle.topology, puzzle.wants[container])
        if sets is None:
            return Packed(None, limited=True)
        lists.append(sets[sets & ~puzzle.allowed[container] == 0])
    start = _Lists(programme.overload == 0, lists)
    for turn, work in enumerate(_WORK):
        search = _ListSearch(programme, work, np.random.default_rng(turn) if turn else None, effort)
        members = search.decide(start)
        if members is not None:
            return Packed(programme.in_puzzle(members))
        if search.work >= 0:
            return Packed(None)
    return Packed(None, limited=True)


@dataclass(frozen=True)
class _Lists:
    holds: Bools
    """[cards, sets of containers]: what each card may end up with."""
    cards: Sequence[Ints]
    """Per container the sets of cards, as bits, that it may get."""


class _ListSearch:
    def __init__(self, programme: Programme, work: int, chance: np.random.Generator | None, effort: Effort) -> None:
        self.sets = programme.sets.astype(np.float32)
        weights = programme.weights.astype(np.float64).T
        self.values = weights @ programme.sets.T
        self.wanted = weights @ programme.wants
        self.slight = _SLIGHT * (1 + self.wanted)
        self.work = work
        self.chance = chance
        self.effort = effort

    def decide(self, lists: _Lists) -> Sequence[int] | None:
        shorter = self._shortened(lists)
        if shorter is None:
            return None
        lengths = np.array([len(cards) for cards in shorter.cards])
        widths = shorter.holds.sum(axis=1)
        if (lengths == 1).all():
            return _members(shorter)
        for choice in self._choices(shorter, lengths, widths):
            found = self.decide(choice)
            if found is not None or self.work < 0:
                return found
        return None

    def _choices(self, lists: _Lists, lengths: Ints, widths: Ints) -> Iterator[_Lists]:
        container = int(np.where(lengths > 1, lengths, np.iinfo(np.int64).max).argmin())
        card = int(np.where(widths > 1, widths, np.iinfo(np.int64).max).argmin())
        if lengths[container] <= widths[card] or widths[card] == 1:
            sets = lists.cards[container] if self.chance is None else self.chance.permutation(lists.cards[container])
            for cards in sets:
                yield _Lists(lists.holds, [*lists.cards[:container], np.array([cards]), *lists.cards[container + 1 :]])
            return
        sets = np.flatnonzero(lists.holds[card])
        fullest = np.argsort(-self.values[:, sets].sum(axis=0), kind="stable")
        for number in sets[fullest] if self.chance is None else self.chance.permutation(sets):
            holds = lists.holds.copy()
            holds[card] = False
            holds[card, number] = True
            yield _Lists(holds, lists.cards)

    def _shortened(self, lists: _Lists) -> _Lists | None:
        """None if one of the lists becomes empty."""
        holds, cards = lists.holds, list(lists.cards)
        bits = np.int64(1) << np.arange(len(holds))
        while True:
            entries = _PASS + holds.size * len(self.values) + sum(map(len, cards))
            self.work -= entries
            if not self.effort.take(entries // _ENTRIES_PER_STEP):
                self.work = -1
                return None
            before = int(holds.sum())
            for values, wanted, slight in zip(self.values, self.wanted, self.slight, strict=True):
                most = np.where(holds, values, -np.inf).max(axis=1)
                slack = most.sum() - wanted + slight
                if not slack >= 0:
                    return None
                holds = holds & (values >= (most - slack)[:, np.newaxis])
            counts = holds.astype(np.float32) @ self.sets
            total = holds.sum(axis=1)
            if not total.all():
                return None
            some, every = bits @ (counts > 0), bits @ (counts == total[:, np.newaxis])
            for container, sets in enumerate(cards):
                cards[container] = sets[(sets & ~some[container] == 0) & (sets & every[container] == every[container])]
                if not len(cards[container]):
                    return None
            never = np.array([np.bitwise_or.reduce(sets) for sets in cards]) & bits[:, np.newaxis] == 0
            always = np.array([np.bitwise_and.reduce(sets) for sets in cards]) & bits[:, np.newaxis] != 0
            holds &= (never @ self.sets.T + always @ (1 - self.sets.T)) == 0
            if int(holds.sum()) == before:
                return _Lists(holds, cards)


def _members(lists: _Lists) -> Sequence[int]:
    return [
        sum(1 << container for container, sets in enumerate(lists.cards) if int(sets[0]) >> card & 1)
        for card in range(len(lists.holds))
    ]


@lru_cache(256)
def _listed(wiring: Wiring, topology: Topology, count: int) -> Ints | None:
    """Every connected set of `count` cards, as bits; None if there are too many."""
    near = wiring.joined(topology)
    cards = len(near)
    if cards > _MAX_CARDS:
        return None
    bits = np.int64(1) << np.arange(cards)
    around = (near * bits).sum(axis=1)
    sets = bits if count else np.zeros(1, np.int64)
    for _ in range(count - 1):
        inside = sets[:, np.newaxis] & bits != 0
        beside = np.bitwise_or.reduce(np.where(inside, around, 0), axis=1)
        grown = np.where((beside[:, np.newaxis] & bits != 0) & ~inside, sets[:, np.newaxis] | bits, 0)
        sets = np.unique(grown[grown != 0])
        if len(sets) > _MAX_SETS:
            return None
    return sets
