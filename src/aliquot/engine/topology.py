"""How the cards of a node are connected: pair scores, and which cards a required topology joins.

Everything depends on a node's wiring alone, so it is computed once per wiring and shared by all nodes of the same
build.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

from aliquot.model import Gpu, Topology
from aliquot.model.links import Pcie, nvlinks

if TYPE_CHECKING:
    from aliquot.engine.arrays import Bools, Ints

_REMEMBERED = 1 << 10


@dataclass(frozen=True)
class Wiring:
    """How the cards of a node are connected, by row. Nodes of the same build have equal wirings."""

    scores: tuple[tuple[int, ...], ...]
    numa: tuple[int | None, ...]

    @property
    def matrix(self) -> "Ints":
        return _matrix(self)

    @property
    def known(self) -> bool:
        """Whether it is known how any two cards are connected."""
        return any(map(any, self.scores))

    def joined(self, topology: Topology) -> "Bools":
        """[cards, cards]: which cards the topology counts as neighbours."""
        return _joined(self, topology)

    def joins(self, row: int, other: int, topology: Topology) -> bool:
        """Whether the topology counts two cards as neighbours."""
        match topology:
            case Topology.NUMA:
                return self.numa[row] is not None and self.numa[row] == self.numa[other]
            case Topology.NVLINK:
                return nvlinks(self.scores[row][other]) > 0
            case Topology.ANY:
                return True


def wiring_of(gpus: Sequence[Gpu]) -> Wiring:
    """Pairs without a reported link are judged by their NUMA nodes, if both are known."""
    rows = {gpu.uuid: row for row, gpu in enumerate(gpus)}
    said: dict[tuple[int, int], int] = {}
    for gpu in gpus:
        for link in gpu.links:
            here, there = rows[gpu.uuid], rows.get(link.uuid)
            if there is not None and there != here:
                pair = min(here, there), max(here, there)
                said[pair] = max(said.get(pair, 0), link.score)  # a link may be reported by one side only
    scores = [[0] * len(gpus) for _ in gpus]
    for row, other in combinations(range(len(gpus)), 2):
        score = said.get((row, other), _by_numa(gpus[row].numa, gpus[other].numa))
        scores[row][other] = scores[other][row] = score
    return Wiring(tuple(map(tuple, scores)), tuple(gpu.numa for gpu in gpus))


def _by_numa(numa: int | None, other: int | None) -> int:
    if numa is None or other is None:
        return Pcie.UNKNOWN
    return Pcie.SAME_CPU if numa == other else Pcie.CROSS_CPU


def allows(wiring: Wiring, rows: Sequence[int], topology: Topology) -> bool:
    """Whether the topology connects a set: from each card to each other card over neighbours in the set. A single card
    always is connected."""
    return len(groups(wiring, rows, topology)) <= 1


def groups(wiring: Wiring, rows: Sequence[int], topology: Topology) -> list[list[int]]:
    """The rows, grouped by which reach each other."""
    near, left, found = _neighbours(wiring, topology), _bits(rows), list[list[int]]()
    while left:
        group = added = left & -left
        left ^= added
        while added:
            lowest = added & -added
            reached = near[lowest.bit_length() - 1] & left
            left ^= reached
            group |= reached
            added = added ^ lowest | reached
        found.append([row for row in rows if group >> row & 1])
    return found


def in_reach(wiring: Wiring, rows: Sequence[int], topology: Topology) -> tuple[int, ...]:
    """A connected set, ordered so that its first cards are connected, however few are taken."""
    return next(connected_sets(wiring, topology, rows, len(rows)))


def connected_sets(wiring: Wiring, topology: Topology, rows: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    """Every connected set of `count` of the rows exactly once. Sets grow from the first rows, always by the first
    neighbour."""
    joined = _neighbours(wiring, topology)
    near = [_bits(place for place, other in enumerate(rows) if joined[row] >> other & 1) for row in rows]

    def reach(start: int, within: int) -> int:
        reached = added = start
        while added:
            lowest = added & -added
            new = near[lowest.bit_length() - 1] & within & ~reached
            reached |= new
            added = added ^ lowest | new
        return reached

    def grow(grown: tuple[int, ...], members: int, beside: int, left: int) -> Iterator[tuple[int, ...]]:
        """`left` are the places that may still be added; `beside` are those of them that neighbour the set."""
        if len(grown) == count:
            yield tuple(rows[place] for place in grown)
            return
        while beside and reach(members, left).bit_count() >= count:
            first = beside & -beside
            place = first.bit_length() - 1
            beside, left = beside ^ first, left ^ first
            yield from grow((*grown, place), members | first, (beside | near[place]) & left, left)

    every = (1 << len(rows)) - 1
    for place in range(len(rows)):
        left = every >> place + 1 << place + 1
        yield from grow((place,), 1 << place, near[place] & left, left)


@lru_cache(_REMEMBERED)
def _matrix(wiring: Wiring) -> "Ints":
    import numpy as np  # most questions need no arrays

    matrix = np.array(wiring.scores, np.int64).reshape(len(wiring.scores), len(wiring.scores))
    matrix.setflags(write=False)
    return matrix


@lru_cache(_REMEMBERED)
def _joined(wiring: Wiring, topology: Topology) -> "Bools":
    import numpy as np

    rows = range(len(wiring.scores))
    joined = [[wiring.joins(row, other, topology) for other in rows] for row in rows]
    matrix = np.array(joined, np.bool_).reshape(len(rows), len(rows))
    matrix.setflags(write=False)
    return matrix


@lru_cache(_REMEMBERED)
def _neighbours(wiring: Wiring, topology: Topology) -> tuple[int, ...]:
    """Per card its neighbours, as bits."""
    return tuple(_bits(near.nonzero()[0].tolist()) for near in _joined(wiring, topology))


def _bits(rows: Iterable[int]) -> int:
    return sum(1 << row for row in rows)
