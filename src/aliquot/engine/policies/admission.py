"""gpu-admission's ascending order: the fewest free cores first, then the least free memory, on cards and on nodes."""

import numpy as np

from aliquot.engine.view import Floats, GpuPolicy, NodePolicy, Outcome, Ranks, View

BLOCK_MIB = 256
"""It counts memory in blocks."""

_MEMORY_BITS = 32


class AdmissionCards(GpuPolicy):
    name = "admission"

    def rank(self, view: View) -> Ranks:
        return (view.free_cores << _MEMORY_BITS) + view.free_mib // BLOCK_MIB


class AdmissionNodes(NodePolicy):
    name = "admission"

    def score(self, outcome: Outcome) -> Floats:
        """By what is free before the pod comes."""
        fleet = outcome.fleet
        free = (fleet.node_free_cores << _MEMORY_BITS) + fleet.node_free_mib // BLOCK_MIB
        return -free.astype(np.float64)
