"""Sets of cards that are well connected, or connected as a wish demands."""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import combinations
from math import comb

import numpy as np

from aliquot.engine.arrays import Bools, Floats, Ints, Ranks, masked
from aliquot.engine.topology import Wiring, groups
from aliquot.model import Topology

MAX_SETS = comb(16, 8)
"""Up to so many sets of cards all are looked at."""

_REMEMBERED = 1 << 14


@lru_cache(_REMEMBERED)
def best_set(
    wiring: Wiring,
    rows: tuple[int, ...],
    count: int,
    topology: Topology = Topology.ANY,
    most_sets: int = MAX_SETS,
) -> tuple[int, ...]:
    """The best connected `count` of these rows that the wish allows; empty if none is allowed.

    Equal sets: the one with the least worth to the rows that stay, then the lowest rows. Beyond `most_sets` sets they
    are grown card by card: not always the best, but one whenever there is one.
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
    """For nodes of one wiring at once: `count` of the possible cards, connected as the wish demands, with low keys, or
    without keys well connected; and where there are any. Arrays are [cards, nodes], the answers [count, nodes] and
    [nodes].

    A set exists exactly where cards that reach each other are enough, so none has to be sought. It grows from the
    lowest key of such cards by the lowest key next to it: where all cards of a group are next to each other, as in a
    NUMA node, that is the lowest set of all.
    """
    joined, matrix = wiring.joined(topology), wiring.matrix
    enough = possible & (_reach(joined, possible) >= count)
    if keys is not None:
        rows = _grow(joined, enough, _lowest(keys, enough), count, lambda _: keys)
    else:
        rows = _grow(joined, enough, _lowest(-(matrix @ enough), enough), count, lambda member: -(matrix @ member))
    return rows, np.asarray(enough.any(axis=0))


def set_score(wiring: Wiring, rows: Sequence[int]) -> int:
    """The sum over the pairs of a set."""
    return sum(wiring.scores[one][other] for one, other in combinations(rows, 2))


def best_score(wiring: Wiring, count: int) -> int:
    """What the best set of `count` cards scores while the node is empty."""
    return set_score(wiring, best_set(wiring, tuple(range(len(wiring.scores))), count))


@cache
def _sets(of: int, count: int) -> Ints:
    """Every set of `count` places out of `of`, in ascending order: [sets, count]."""
    return np.array(list(combinations(range(of), count)), np.int64).reshape(-1, count)


def _best(
    wiring: Wiring, topology: Topology, rows: Sequence[int], wide: Sequence[Sequence[int]], count: int
) -> tuple[int, ...]:
    """Of every allowed set the best."""
    sets = np.concatenate([np.array(group, np.int64)[_sets(len(group), count)] for group in wide])
    matrix = wiring.matrix.astype(np.float64)  # numpy multiplies these faster than integers
    member = np.zeros((len(sets), len(matrix)), np.float64)
    np.put_along_axis(member, sets, 1, axis=1)
    allowed = _connected(wiring.joined(topology), member)
    scores = np.where(allowed, ((member @ matrix) * member).sum(axis=1), -1)
    # of equal sets, the one with fewer links to all has fewer links to the rest
    worth = np.where(scores == scores.max(), member @ matrix[:, rows].sum(axis=1), np.inf)
    return tuple(min(sets[worth == worth.min()].tolist()))


def _connected(joined: Bools, member: Floats) -> Bools:
    """Which sets hang together: all at once, by widening what the first card reaches."""
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
    """[cards, nodes]: how many possible cards each possible one reaches over possible ones, itself counted."""
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
    """[count, cases]: from a start each, always the cheapest possible card next to what there is; where there is none,
    the rest means nothing."""
    member = np.zeros(possible.shape)
    rows, near = [starts], joined.astype(np.float64)
    for _ in range(count - 1):
        np.put_along_axis(member, rows[-1][np.newaxis], 1, axis=0)
        rows.append(_lowest(cost(member), (near @ member > 0) & possible & (member == 0)))
    return np.array(rows)


def _lowest(costs: Ranks, possible: Bools) -> Ints:
    return np.asarray(masked(possible, costs).argmin(axis=0))
