"""How the cards of a node are connected: pair scores, and which cards a hard wish joins.

Everything depends on a node's wiring alone, so it is computed once per wiring and shared by all nodes built alike.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from aliquot.engine.arrays import Bools, Ints
from aliquot.model import Gpu, Topology
from aliquot.model.links import Pcie, nvlinks

_REMEMBERED = 1 << 10


@dataclass(frozen=True)
class Wiring:
    """How the cards of a node are connected, by row. Equal wirings are one value, whatever node they are in."""

    scores: tuple[tuple[int, ...], ...]
    numa: tuple[int | None, ...]

    @property
    def matrix(self) -> Ints:
        return _matrix(self)

    @property
    def known(self) -> bool:
        """Whether any two cards say how they are connected."""
        return any(map(any, self.scores))

    def joined(self, topology: Topology) -> Bools:
        """[cards, cards]: which are next to each other in the sense of a wish."""
        return _joined(self, topology)

    def joins(self, row: int, other: int, topology: Topology) -> bool:
        """Whether two cards are next to each other in the sense of a wish."""
        match topology:
            case Topology.NUMA:
                return self.numa[row] is not None and self.numa[row] == self.numa[other]
            case Topology.NVLINK:
                return nvlinks(self.scores[row][other]) > 0
            case Topology.ANY:
                return True


def wiring_of(gpus: Sequence[Gpu]) -> Wiring:
    """Pairs that say nothing of each other are judged by their NUMA nodes, if both have one."""
    rows = {gpu.uuid: row for row, gpu in enumerate(gpus)}
    said: dict[tuple[int, int], int] = {}
    for gpu in gpus:
        for link in gpu.links:
            here, there = rows[gpu.uuid], rows.get(link.uuid)
            if there is not None and there != here:
                pair = min(here, there), max(here, there)
                said[pair] = max(said.get(pair, 0), link.score)  # one side may not tell what the other does
    scores = [[0] * len(gpus) for _ in gpus]
    for one, other in combinations(range(len(gpus)), 2):
        score = said.get((one, other), _by_numa(gpus[one].numa, gpus[other].numa))
        scores[one][other] = scores[other][one] = score
    return Wiring(tuple(map(tuple, scores)), tuple(gpu.numa for gpu in gpus))


def _by_numa(one: int | None, other: int | None) -> int:
    if one is None or other is None:
        return Pcie.UNKNOWN
    return Pcie.SAME_CPU if one == other else Pcie.CROSS_CPU


def allows(wiring: Wiring, rows: Sequence[int], topology: Topology) -> bool:
    """Whether a set is connected as the wish demands: from each card to each other over cards of the set that are next
    to each other. One card always is."""
    return len(groups(wiring, rows, topology)) <= 1


def groups(wiring: Wiring, rows: Sequence[int], topology: Topology) -> list[list[int]]:
    """Those of the rows that reach each other, together."""
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


@lru_cache(_REMEMBERED)
def _matrix(wiring: Wiring) -> Ints:
    matrix = np.array(wiring.scores, np.int64).reshape(len(wiring.scores), len(wiring.scores))
    matrix.setflags(write=False)
    return matrix


@lru_cache(_REMEMBERED)
def _joined(wiring: Wiring, topology: Topology) -> Bools:
    rows = range(len(wiring.scores))
    joined = [[wiring.joins(one, other, topology) for other in rows] for one in rows]
    matrix = np.array(joined, np.bool_).reshape(len(rows), len(rows))
    matrix.setflags(write=False)
    return matrix


@lru_cache(_REMEMBERED)
def _neighbours(wiring: Wiring, topology: Topology) -> tuple[int, ...]:
    """Per card those next to it, as bits."""
    return tuple(_bits(np.flatnonzero(near).tolist()) for near in _joined(wiring, topology))


def _bits(rows: Iterable[int]) -> int:
    return sum(1 << row for row in rows)
