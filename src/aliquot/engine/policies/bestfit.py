"""Best fit, as FGD's authors compare with it: the node that has the least CPU and GPU left, and its tightest card."""

import numpy as np

from aliquot.engine.arrays import Floats, Ranks
from aliquot.engine.policies.measures import idle_share
from aliquot.engine.view import GpuPolicy, NodePolicy, PolicyOutcome, View
from aliquot.engine.workload import WHOLE

_ALL_CPU, _ALL_GPU = 128_000, 8 * WHOLE
"""The largest node of the authors' cluster: 128 cores and 8 cards."""


class BestFittingCards(GpuPolicy):
    name = "bestfit"

    def rank(self, view: View) -> Ranks:
        return idle_share(view.fleet, view.free_mib, view.free_cores, (view.part,))


class BestFittingNodes(NodePolicy):
    name = "bestfit"

    def score(self, outcome: PolicyOutcome) -> Floats:
        """100 if nothing is left, less for each CPU and card. Whole points, as its authors count: within a point the
        first fit wins."""
        parts = [container.part for container in outcome.request.containers]
        left = idle_share(outcome.fleet, outcome.after_mib, outcome.after_cores, parts).sum(axis=0)
        cpu = outcome.fleet.host_cpu - outcome.request.host.cpu
        return np.asarray(np.floor(100 * (1 - 0.5 * cpu / _ALL_CPU - 0.5 * left / _ALL_GPU)), np.float64)

    def score_without_gpu(self, outcome: PolicyOutcome) -> Floats:
        return self.score(outcome)
