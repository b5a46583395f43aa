"""Looks ahead: a pod goes where the pods to come will leave the least idle.

What a node is worth is worked out by filling it with streams of the expected workload, with its CPU and memory
(`engine.forecast`).
"""

from collections.abc import Hashable

import numpy as np

from aliquot.engine.arrays import Floats, Ints, Ranks
from aliquot.engine.forecast.costs import Ask, Cost, forecast
from aliquot.engine.view import GpuPolicy, NodePolicy, PolicyOutcome, View

_NOTHING = np.zeros(1, np.int64)


class LookaheadCards(GpuPolicy):
    name = "lookahead"

    def rank(self, view: View) -> Ranks:
        if view.part.whole:
            return _NOTHING
        if view.count > 1 or view.free_mib is not view.fleet.free_mib:
            return view.left  # the fullest cards, as the forecast has it
        ask, containers = _ask_of(view)
        return forecast(view.settings.expected).costs(view.fleet, ask, containers)


class LookaheadNodes(NodePolicy):
    name = "lookahead"

    def score(self, outcome: PolicyOutcome) -> Floats:
        """A node is worth its best card, whichever card another GPU policy takes."""
        if len(outcome.seen) > 1:
            return -_pod_costs(outcome)
        costs = forecast(outcome.settings.expected).costs(outcome.fleet, *_ask(outcome))
        if len(costs) > 1:
            return np.asarray(-np.where(outcome.seen[0].possible, costs, np.inf).min(axis=0), np.float64)
        return np.asarray(-costs[0], np.float64)

    def why(self, outcome: PolicyOutcome, column: int) -> str:
        cost = _cost_of_pod(outcome, column) if len(outcome.seen) > 1 else _cost_of_container(outcome, column)
        parts = {"idle in the end": cost.wasted, "rooms for large pods": cost.rooms, "contested model": cost.model}
        return "costs in cards: " + ", ".join(f"{what} {each:.3f}" for what, each in parts.items())

    def score_without_gpu(self, outcome: PolicyOutcome) -> Floats:
        return self.score(outcome)


def _ask(outcome: PolicyOutcome) -> tuple[Ask, Hashable]:
    if not outcome.seen:
        return Ask(0, _NOTHING, _NOTHING, outcome.request.host), ()
    return _ask_of(outcome.seen[0])


def _ask_of(view: View) -> tuple[Ask, Hashable]:
    containers = tuple((container.part, container.life) for container in view.request.containers)
    return Ask(view.count, view.need_mib, view.need_cores, view.request.host), containers


def _cost_of_container(outcome: PolicyOutcome, column: int) -> Cost:
    known, (ask, containers), row = forecast(outcome.settings.expected), _ask(outcome), 0
    if ask.cards == 1:
        costs = known.costs(outcome.fleet, ask, containers)[:, column]
        row = int(np.where(outcome.seen[0].possible[:, column], costs, np.inf).argmin())
    return known.cost_at(outcome.fleet, ask, row, column, containers)


def _cost_of_pod(outcome: PolicyOutcome, column: int) -> Cost:
    known, host = forecast(outcome.settings.expected), outcome.request.host
    return known.cost_after(outcome.fleet, column, *_taken(outcome, np.array([column])), host)


def _pod_costs(outcome: PolicyOutcome) -> Floats:
    block, host = outcome.fleet, outcome.request.host
    costs = np.full(block.width, np.inf)
    (columns,) = outcome.fits.nonzero()
    if len(columns):
        known = forecast(outcome.settings.expected)
        costs[columns] = known.costs_after(block, columns, *_taken(outcome, columns), host)
    return costs


def _taken(outcome: PolicyOutcome, columns: Ints) -> tuple[tuple[Ints, Ints], int]:
    """What a pod with several containers leaves of the cards, and how many it takes."""
    free = outcome.after_mib[:, columns], outcome.after_cores[:, columns]
    return free, sum(view.count for view in outcome.seen)
