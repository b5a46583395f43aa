"""Keeps cards close: several cards are chosen as well connected as possible, a single card as badly connected as
possible, so that the others stay together."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb

import numpy as np

from aliquot.engine.arrays import Bools, Floats, Ints, Ranks, alike
from aliquot.engine.block import Block
from aliquot.engine.card_sets import MAX_SETS, best_score, best_set, connected, set_score
from aliquot.engine.topology import Wiring
from aliquot.engine.view import GpuPolicy, NodePolicy, PolicyOutcome, View

_MAX_SETS = 16 * MAX_SETS
"""The number of sets that one decision looks at. After that, good sets suffice."""


class WellConnectedCards(GpuPolicy):
    name = "topology"

    def rank(self, view: View) -> Ranks:
        if view.count == 1:
            return _worth(view.fleet, view.possible)
        fleet, topology = view.fleet, view.request.constraints.topology
        ranks, left = np.ones(view.possible.shape, np.int64), _MAX_SETS
        for nodes in _alike(fleet, view.possible, view.possible.sum(axis=0) >= view.count):
            left -= min(MAX_SETS, comb(len(nodes.rows), view.count))
            if left < 0:
                break
            if _is_even(nodes.wiring, nodes.rows):
                ranks[np.array(nodes.rows, np.int64)[:, np.newaxis], nodes.columns] = 0
                continue  # all sets are equally good: the next policy decides
            best = best_set(nodes.wiring, nodes.rows, view.count, topology)
            ranks[np.array(best, np.int64)[:, np.newaxis], nodes.columns] = 0
        if left < 0:
            _rank_the_rest(ranks, view)
        return ranks


def _is_even(wiring: Wiring, rows: tuple[int, ...]) -> bool:
    """Whether every pair of these cards is connected alike, or nothing is known of them."""
    if not wiring.known:
        return True
    among = wiring.matrix[np.ix_(rows, rows)][~np.eye(len(rows), dtype=np.bool_)]
    return bool((among == among[:1]).all())


def _rank_the_rest(ranks: Ints, view: View) -> None:
    """Uses good sets where it would take too long to find the best ones."""
    rest = np.asarray(ranks.all(axis=0) & (view.possible.sum(axis=0) >= view.count))
    for nodes in _alike(view.fleet, np.zeros_like(view.possible), rest):
        possible = view.possible[: len(nodes.wiring.scores), nodes.columns]
        rows, found = connected(nodes.wiring, view.request.constraints.topology, possible, view.count)
        ranks[rows[:, found], nodes.columns[found]] = 0


class WellConnectedNodes(NodePolicy):
    name = "topology"

    def score(self, outcome: PolicyOutcome) -> Floats:
        """The mean over the containers. 1 is the best that an empty node of that kind could do."""
        scores = [self._of_container(outcome, view, rows) for view, rows in outcome.views]
        return np.asarray(sum(scores) / max(1, len(scores)), np.float64)

    def _of_container(self, outcome: PolicyOutcome, view: View, rows: Ints) -> Floats:
        if view.count == 1:
            return _spared(view, rows)
        scores = np.zeros(outcome.fleet.width)
        chosen = np.zeros(view.possible.shape, np.bool_)
        np.put_along_axis(chosen, rows, True, axis=0)
        for nodes in _alike(outcome.fleet, chosen, outcome.fits):
            best = best_score(nodes.wiring, view.count)
            scores[nodes.columns] = set_score(nodes.wiring, nodes.rows) / best if best else 0.0
        return scores


def _spared(view: View, rows: Ints) -> Floats:
    """For one card: 1 if it breaks up nothing well connected."""
    worth = _worth(view.fleet, view.possible)
    most = np.maximum(_worth(view.fleet, view.fleet.has).max(axis=0, initial=0), 1)
    return np.asarray(1.0 - np.take_along_axis(worth, rows, axis=0)[0] / most, np.float64)


@dataclass(frozen=True)
class _Alike:
    """Nodes of one wiring on which the same rows are marked."""

    wiring: Wiring
    rows: tuple[int, ...]
    columns: Ints


def _alike(fleet: Block, marked: Bools, wanted: Bools) -> Iterator[_Alike]:
    """The wanted columns, grouped by those that are alike."""
    (columns,) = np.nonzero(wanted)
    for group in alike(np.vstack((fleet.wiring_id[columns], marked[:, columns])).astype(np.int64)):
        first = int(columns[group[0]])
        rows = tuple(np.nonzero(marked[:, first])[0].tolist())
        yield _Alike(fleet.wiring(first), rows, columns[group])


def _worth(fleet: Block, others: Bools) -> Ints:
    """The sum of the scores of each card's links to these others."""
    worth = np.zeros(others.shape, np.int64)
    nothing = np.zeros(others.shape, np.bool_)
    for nodes in _alike(fleet, nothing, np.asarray(fleet.has.any(axis=0))):
        cards = len(nodes.wiring.scores)
        if nodes.wiring.known:
            worth[:cards, nodes.columns] = nodes.wiring.matrix @ others[:cards, nodes.columns]
    return worth
