"""The smallest sufficient card, as in gpushare: least free memory, then lowest index. Nothing else counts.

gpushare leaves the choice of the node to kube-scheduler. If the choice is ours, the node with the smallest such card
wins.
"""

import numpy as np

from aliquot.engine.arrays import Floats, Ranks
from aliquot.engine.view import GpuPolicy, NodePolicy, PolicyOutcome, View


class TightestCard(GpuPolicy):
    name = "tightest"

    def rank(self, view: View) -> Ranks:
        return view.free_mib


class TightestNodes(NodePolicy):
    name = "tightest"

    def score(self, outcome: PolicyOutcome) -> Floats:
        """The less memory the chosen cards have left, the better."""
        if len(outcome.views) == 1:  # without an array of every card
            ((view, rows),) = outcome.views
            free = np.take_along_axis(view.free_mib, rows, axis=0).sum(axis=0)
            return np.asarray(outcome.taken_mib - free, np.float64)
        left = [np.take_along_axis(outcome.after_mib, rows, axis=0).sum(axis=0) for _, rows in outcome.views]
        return np.asarray(-np.sum(left, axis=0), np.float64)
