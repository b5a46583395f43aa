"""gpu-admission's ascending order: the fewest free cores first, then the least free memory, on cards and on nodes."""

from typing import TypeVar

import numpy as np

from aliquot.engine.arrays import Floats, Ints, Ranks
from aliquot.engine.view import GpuPolicy, NodePolicy, Outcome, View

BLOCK_MIB = 256
"""It counts memory in blocks."""


class AdmissionCards(GpuPolicy):
    name = "admission"

    def rank(self, view: View) -> Ranks:
        return ascending(view.free_cores, view.free_mib)


class AdmissionNodes(NodePolicy):
    name = "admission"

    def score(self, outcome: Outcome) -> Floats:
        """By what is free before the pod comes, with the memory that belongs to no card."""
        fleet = outcome.fleet
        return -ascending(fleet.node_free_cores, fleet.node_free_mib + fleet.rest_mib).astype(np.float64)


_Number = TypeVar("_Number", int, Ints)


def ascending(cores: _Number, mib: _Number) -> _Number:
    """One number that compares as (cores, blocks) would."""
    return (cores << 32) + mib // BLOCK_MIB
