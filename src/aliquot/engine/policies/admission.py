"""gpu-admission's ascending order: the fewest free cores first, then the least free memory, on cards and on nodes."""

import numpy as np

from aliquot.engine.arrays import Floats, Ranks
from aliquot.engine.one_node.in_order import ascending
from aliquot.engine.view import GpuPolicy, NodePolicy, PolicyOutcome, View


class AdmissionCards(GpuPolicy):
    name = "admission"

    def rank(self, view: View) -> Ranks:
        return ascending(view.free_cores, view.free_mib)


class AdmissionNodes(NodePolicy):
    name = "admission"

    def score(self, outcome: PolicyOutcome) -> Floats:
        """By what is free before the pod is placed, including memory that belongs to no card."""
        fleet = outcome.fleet
        return -ascending(fleet.node_free_cores, fleet.node_free_mib + fleet.rest_mib).astype(np.float64)
