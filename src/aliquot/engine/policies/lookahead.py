"""Looks ahead: a pod goes where the pods to come will leave the least idle.

What a node is worth is worked out by filling it with streams of the expected workload, with its CPU and memory
(`engine.forecast`).
"""

import numpy as np

from aliquot.engine.arrays import Floats, Ranks
from aliquot.engine.forecast.costs import Ask, forecast
from aliquot.engine.view import GpuPolicy, NodePolicy, PolicyOutcome, View


class LookaheadCards(GpuPolicy):
    name = "lookahead"

    def rank(self, view: View) -> Ranks:
        if view.part.whole:
            return np.zeros(1, np.int64)
        if view.count > 1 or view.free_mib is not view.fleet.free_mib:
            return view.left  # the fullest cards, as the forecast has it
        return _costs(view)


class LookaheadNodes(NodePolicy):
    name = "lookahead"

    def score(self, outcome: PolicyOutcome) -> Floats:
        if not outcome.seen:
            nothing = np.zeros(1, np.int64)
            ask = Ask(0, nothing, nothing, outcome.request.host)
            return np.asarray(-forecast(outcome.settings.expected).costs(outcome.fleet, ask)[0])
        if len(outcome.seen) > 1:
            return -_pod_costs(outcome)
        (view,) = outcome.seen
        costs = _costs(view)
        if view.count == 1:
            ((_, rows),) = outcome.views
            costs = np.take_along_axis(costs, rows, axis=0)
        return np.asarray(-costs[0])


def _costs(view: View) -> Floats:
    ask = Ask(view.count, view.need_mib, view.need_cores, view.request.host)
    containers = tuple((container.part, container.life) for container in view.request.containers)
    return forecast(view.settings.expected).costs(view.fleet, ask, containers)


def _pod_costs(outcome: PolicyOutcome) -> Floats:
    block, request = outcome.fleet, outcome.request
    costs = np.full(block.width, np.inf)
    (columns,) = outcome.fits.nonzero()
    if len(columns):
        free = outcome.after_mib[:, columns], outcome.after_cores[:, columns]
        cards = sum(view.count for view in outcome.seen)
        costs[columns] = forecast(outcome.settings.expected).costs_after(block, columns, free, cards, request.host)
    return costs
