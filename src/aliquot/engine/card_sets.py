"""Sets of cards that are well connected, or connected as a topology demands."""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import combinations
from math import comb

import numpy as np

from aliquot.engine.arrays import Bools, Floats, Ints, Ranks, masked
from aliquot.engine.topology import Wiring, groups
from aliquot.model import Topology

MAX_SETS = comb(16, 8)
"""Up to this many sets of cards, all are tried."""

_REMEMBERED = 1 << 14


@lru_cache(_REMEMBERED)
def best_set(
    wiring: Wiring,
    rows: tuple[int, ...],
    count: int,
    topology: Topology = Topology.ANY,
    most_sets: int = MAX_SETS,
) -> tuple[int, ...]:
    """The best connected `count` of these rows that the topology allows; empty if it allows none.

    Among equal sets, the one that is worth least to the remaining rows wins, then the lowest rows. With more than
    `most_sets` sets, a set grows card by card. The result may not be the best set, but there is a result whenever a set
    exists.
    """
    if not 0 < count <= len(rows):
        return ()
    wide = [group for group in groups(wiring, rows, topology) if len(group) >= count]
    if not wide:
        return ()
    if sum(comb(len(group), count) for group in wide) > most_sets:
        return _grown(wiring, topology, wide, count)
    return _best(wiring, topology, rows, wide, count)


def connected(
    wiring: Wiring, topology: Topology, possible: Bools, count: int, keys: Ranks | None = None
) -> tuple[Ints, Bools]:
    """For all nodes of one wiring, choose `count` of the possible cards, connected as the topology demands: with low
    keys, or well connected if there are no keys. Also return the nodes that have such a set. Arrays are [cards, nodes],
    the results [count, nodes] and [nodes].

    A set exists exactly if enough cards reach each other, so no search is needed. It grows from the card with the
    lowest key, always by the neighbour with the lowest key. Where all cards of a group are neighbours, as in a NUMA
    node, that is the lowest set of all.
    """
    joined, matrix = wiring.joined(topology), wiring.matrix
    enough = possible & (_reach(joined, possible) >= count)
    if keys is not None:
        rows = _grow(joined, enough, _lowest(keys, enough), count, lambda _: keys)
    else:
        rows = _grow(joined, enough, _lowest(-(matrix @ enough), enough), count, lambda member: -(matrix @ member))
    return rows, np.asarray(enough.any(axis=0))


def set_score(wiring: Wiring, rows: Sequence[int]) -> int:
    """The sum of the scores of all pairs of a set."""
    return sum(wiring.scores[row][other] for row, other in combinations(rows, 2))


def best_score(wiring: Wiring, count: int) -> int:
    """The score of the best set of `count` cards on an empty node."""
    return set_score(wiring, best_set(wiring, tuple(range(len(wiring.scores))), count))


@cache
def _sets(of: int, count: int) -> Ints:
    """Every set of `count` numbers below `of`, in ascending order: [sets, count]."""
    return np.array(list(combinations(range(of), count)), np.int64).reshape(-1, count)


def _best(
    wiring: Wiring, topology: Topology, rows: Sequence[int], wide: Sequence[Sequence[int]], count: int
) -> tuple[int, ...]:
    """The best of all allowed sets."""
    sets = np.concatenate([np.array(group, np.int64)[_sets(len(group), count)] for group in wide])
    matrix = wiring.matrix.astype(np.float64)  # numpy multiplies floats faster than integers
    member = np.zeros((len(sets), len(matrix)), np.float64)
    np.put_along_axis(member, sets, 1, axis=1)
    allowed = _connected(wiring.joined(topology), member)
    scores = np.where(allowed, ((member @ matrix) * member).sum(axis=1), -1)
    # among equal sets, the one with fewer links to all rows has fewer links to the rest
    worth = np.where(scores == scores.max(), member @ matrix[:, rows].sum(axis=1), np.inf)
    return tuple(min(sets[worth == worth.min()].tolist()))


def _connected(joined: Bools, member: Floats) -> Bools:
    """Which sets are connected: computed for all at once, by widening what the first card reaches."""
    if joined.all():
        return np.ones(len(member), np.bool_)
    near, inside = joined.astype(np.float64), member > 0
    reached = np.zeros(member.shape, np.bool_)
    reached[np.arange(len(member)), inside.argmax(axis=1)] = True
    while True:
        wider = inside & (reached | (reached.astype(np.float64) @ near > 0))
        if (wider == reached).all():
            return np.asarray((reached == inside).all(axis=1))
        reached = wider


def _grown(wiring: Wiring, topology: Topology, wide: Sequence[Sequence[int]], count: int) -> tuple[int, ...]:
    """The best of the sets that grow from each card by the card that adds most."""
    matrix, starts = wiring.matrix, np.array([row for group in wide for row in group], np.int64)
    possible = np.zeros((len(matrix), len(starts)), np.bool_)
    possible[starts] = True
    rows = _grow(wiring.joined(topology), possible, starts, count, lambda member: -(matrix @ member))
    scores = matrix[rows[:, np.newaxis], rows[np.newaxis]].sum(axis=(0, 1))
    return tuple(sorted(rows[:, scores.argmax()].tolist()))


def _reach(joined: Bools, possible: Bools) -> Ints:
    """[cards, nodes]: how many possible cards each possible card reaches over possible cards, including itself."""
    cards = len(joined)
    beyond = np.int64(cards)
    labels = np.where(possible, np.arange(cards)[:, np.newaxis], beyond)
    near = [np.flatnonzero(joined[row] | (np.arange(cards) == row)) for row in range(cards)]
    while True:
        before = labels.copy()
        for row, others in enumerate(near):
            least = np.where(possible[row], labels[others].min(axis=0), beyond)
            labels[others] = np.where(possible[others], np.minimum(labels[others], least), beyond)
        if (labels == before).all():
            break
    return np.array([(labels == labels[row]).sum(axis=0) for row in range(cards)], np.int64).reshape(possible.shape)


def _grow(joined: Bools, possible: Bools, starts: Ints, count: int, cost: Callable[[Floats], Ranks]) -> Ints:
    """[count, cases]: grows each start by the cheapest possible neighbour of what it has. Where there is none, the
    remaining rows mean nothing."""
    member = np.zeros(possible.shape)
    rows, near = [starts], joined.astype(np.float64)
    for _ in range(count - 1):
        np.put_along_axis(member, rows[-1][np.newaxis], 1, axis=0)
        rows.append(_lowest(cost(member), (near @ member > 0) & possible & (member == 0)))
    return np.array(rows)


def _lowest(costs: Ranks, possible: Bools) -> Ints:
    return np.asarray(masked(possible, costs).argmin(axis=0))
