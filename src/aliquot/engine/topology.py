"""Sets of cards by how well they are connected: pair scores, the best set, and which sets a hard wish allows.

Everything depends on a node's wiring alone, so it is computed once per wiring and shared by all nodes built alike.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from aliquot.model import Gpu, Topology
from aliquot.model.links import Pcie, nvlinks

MOST_ENUMERATED = 16
"""Up to so many cards every set is looked at (at most 12,870); beyond it sets are grown card by card."""

_REMEMBERED = 1 << 14
_MOST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Wiring:
    """How the cards of a node are connected, by row. Equal wirings are one value, whatever node they are in."""

    scores: tuple[tuple[int, ...], ...]
    numa: tuple[int | None, ...]

    @property
    def matrix(self) -> NDArray[np.int64]:
        return _matrix(self)

    @property
    def known(self) -> bool:
        """Whether any two cards say how they are connected."""
        return any(map(any, self.scores))

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
    return not rows or bool(_connected(_joined(wiring, topology), np.array([rows], np.int64))[0])


@lru_cache(_REMEMBERED)
def best_set(wiring: Wiring, rows: tuple[int, ...], count: int, topology: Topology = Topology.ANY) -> tuple[int, ...]:
    """The best connected `count` of these rows that the wish allows; empty if none is allowed.

    Equal sets: the one with the least worth to the rows that stay, then the lowest rows.
    """
    if not 0 < count <= len(rows):
        return ()
    if len(rows) > MOST_ENUMERATED:
        return _grown(wiring, rows, count, topology)
    matrix, sets = wiring.matrix[np.ix_(rows, rows)], _sets(len(rows), count)
    allowed = _connected(_joined(wiring, topology)[np.ix_(rows, rows)], sets)
    if not allowed.any():
        return ()
    scores = np.where(allowed, _set_scores(matrix, sets), -1)
    # of equal sets, the one with fewer links to all has fewer links to the rest
    worth = np.where(scores == scores.max(), matrix.sum(axis=1)[sets].sum(axis=1), _MOST)
    return tuple(rows[place] for place in sets[worth.argmin()].tolist())


def allowed_sets(wiring: Wiring, rows: tuple[int, ...], count: int, topology: Topology) -> Iterator[tuple[int, ...]]:
    """Every set of `count` of these rows that the wish allows, the best connected first."""
    if len(rows) > MOST_ENUMERATED:
        yield from (found for found in combinations(rows, count) if allows(wiring, found, topology))
        return
    sets = _sets(len(rows), count)
    sets = sets[_connected(_joined(wiring, topology)[np.ix_(rows, rows)], sets)]
    scores = _set_scores(wiring.matrix[np.ix_(rows, rows)], sets)
    for places in sets[np.argsort(-scores, kind="stable")].tolist():
        yield tuple(rows[place] for place in places)


def set_score(wiring: Wiring, rows: Sequence[int]) -> int:
    """The sum over the pairs of a set."""
    return sum(wiring.scores[one][other] for one, other in combinations(rows, 2))


def best_score(wiring: Wiring, count: int) -> int:
    """What the best set of `count` cards scores while the node is empty."""
    return set_score(wiring, best_set(wiring, tuple(range(len(wiring.scores))), count))


@lru_cache(_REMEMBERED)
def _matrix(wiring: Wiring) -> NDArray[np.int64]:
    matrix = np.array(wiring.scores, np.int64).reshape(len(wiring.scores), len(wiring.scores))
    matrix.setflags(write=False)
    return matrix


@lru_cache(_REMEMBERED)
def _joined(wiring: Wiring, topology: Topology) -> NDArray[np.bool_]:
    rows = range(len(wiring.scores))
    joined = [[wiring.joins(one, other, topology) for other in rows] for one in rows]
    return np.array(joined, np.bool_).reshape(len(rows), len(rows))


@cache
def _sets(of: int, count: int) -> NDArray[np.int64]:
    """Every set of `count` places out of `of`, in ascending order: [sets, count]."""
    return np.array(list(combinations(range(of), count)), np.int64).reshape(-1, count)


def _set_scores(matrix: NDArray[np.int64], sets: NDArray[np.int64]) -> NDArray[np.int64]:
    scores = np.zeros(len(sets), np.int64)
    for one, other in combinations(range(sets.shape[1]), 2):
        scores += matrix[sets[:, one], sets[:, other]]
    return scores


def _connected(joined: NDArray[np.bool_], sets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which sets hang together: all at once, by widening what the first card reaches."""
    if joined.all():
        return np.ones(len(sets), np.bool_)
    within = joined[sets[:, :, np.newaxis], sets[:, np.newaxis, :]]
    reached = np.zeros(sets.shape, np.bool_)
    reached[:, :1] = True
    for _ in range(sets.shape[1] - 1):
        reached |= (within & reached[:, :, np.newaxis]).any(axis=1)
    return np.asarray(reached.all(axis=1))


def _grown(wiring: Wiring, rows: tuple[int, ...], count: int, topology: Topology) -> tuple[int, ...]:
    """The best of the sets that grow from each row by the card that adds most: not always the best of all, but one
    whenever there is one."""
    grown = (_grow(wiring, rows, start, count, topology) for start in rows)
    return max((found for found in grown if found), key=lambda found: set_score(wiring, found), default=())


def _grow(wiring: Wiring, rows: tuple[int, ...], start: int, count: int, topology: Topology) -> tuple[int, ...]:
    members, matrix, joined = [start], wiring.matrix, _joined(wiring, topology)
    while len(members) < count:
        near = [row for row in rows if row not in members and joined[row, members].any()]
        if not near:
            return ()
        members.append(max(near, key=lambda row: int(matrix[row, members].sum())))
    return tuple(sorted(members))
