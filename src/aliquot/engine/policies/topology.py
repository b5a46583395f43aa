"""Near each other: several cards that are connected as well as possible; for one card the least connected, so that the
others stay together."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from aliquot.engine.fleet import Fleet
from aliquot.engine.topology import Wiring, best_score, best_set, set_score
from aliquot.engine.view import Bools, Floats, GpuPolicy, Ints, NodePolicy, Outcome, Ranks, View


class WellConnectedCards(GpuPolicy):
    name = "topology"

    def rank(self, view: View) -> Ranks:
        if view.count == 1:
            return _worth(view.fleet, view.possible)
        ranks = np.ones(view.possible.shape, np.int64)
        for alike in _alike(view.fleet, view.possible, view.possible.sum(axis=0) >= view.count):
            best = best_set(alike.wiring, alike.rows, view.count, view.request.wishes.topology)
            ranks[np.array(best, np.int64)[:, np.newaxis], alike.columns] = 0
        return ranks


class WellConnectedNodes(NodePolicy):
    name = "topology"

    def score(self, outcome: Outcome) -> Floats:
        """The mean over the containers: 1 for what an empty node of that kind could do at best."""
        scores = [self._of_container(outcome, view, rows) for view, rows in outcome.views]
        return np.asarray(sum(scores) / max(1, len(scores)), np.float64)

    def _of_container(self, outcome: Outcome, view: View, rows: Ints) -> Floats:
        if view.count == 1:
            return _spared(view, rows)
        scores = np.zeros(outcome.fleet.width)
        chosen = np.zeros(view.possible.shape, np.bool_)
        np.put_along_axis(chosen, rows, True, axis=0)
        for alike in _alike(outcome.fleet, chosen, outcome.fits):
            best = best_score(alike.wiring, view.count)
            scores[alike.columns] = set_score(alike.wiring, alike.rows) / best if best else 0.0
        return scores


def _spared(view: View, rows: Ints) -> Floats:
    """For one card: 1 where nothing well connected is broken up."""
    worth = _worth(view.fleet, view.possible)
    most = np.maximum(_worth(view.fleet, view.fleet.has).max(axis=0, initial=0), 1)
    return np.asarray(1.0 - np.take_along_axis(worth, rows, axis=0)[0] / most, np.float64)


@dataclass(frozen=True)
class _Alike:
    """Nodes of one wiring on which the same rows are marked."""

    wiring: Wiring
    rows: tuple[int, ...]
    columns: Ints


def _alike(fleet: Fleet, marked: Bools, wanted: Bools) -> Iterator[_Alike]:
    """The wanted columns, those that are alike together: a cluster has thousands of nodes but few kinds."""
    (columns,) = np.nonzero(wanted)
    if not len(columns):
        return
    keys = np.vstack((fleet.wiring_id[columns], marked[:, columns]))
    for group in _groups(keys.astype(np.int64)):
        first = int(columns[group[0]])
        rows = tuple(np.nonzero(marked[:, first])[0].tolist())
        yield _Alike(fleet.wiring(first), rows, columns[group])


def _groups(keys: Ints) -> list[Ints]:
    """Places of equal columns."""
    whole = np.ascontiguousarray(keys.T).view(f"V{8 * keys.shape[0]}").ravel()
    _, inverse = np.unique(whole, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(inverse[order])) + 1)


def _worth(fleet: Fleet, others: Bools) -> Ints:
    """What each card's links to these others are worth."""
    worth = np.zeros(others.shape, np.int64)
    nothing = np.zeros(others.shape, np.bool_)
    for alike in _alike(fleet, nothing, np.asarray(fleet.has.any(axis=0))):
        cards = len(alike.wiring.scores)
        if alike.wiring.known:
            worth[:cards, alike.columns] = alike.wiring.matrix @ others[:cards, alike.columns]
    return worth
