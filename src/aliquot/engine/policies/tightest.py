"""The smallest sufficient card, as gpushare has it: least memory free, then lowest index. It looks at nothing else.

gpushare leaves the node to kube-scheduler; where the choice is ours, the node with the smallest such card follows.
"""

import numpy as np

from aliquot.engine.arrays import Floats, Ranks
from aliquot.engine.view import GpuPolicy, NodePolicy, Outcome, View


class TightestCard(GpuPolicy):
    name = "tightest"

    def rank(self, view: View) -> Ranks:
        return view.free_mib


class TightestNodes(NodePolicy):
    name = "tightest"

    def score(self, outcome: Outcome) -> Floats:
        """The less memory the chosen cards are left with, the better."""
        if len(outcome.views) == 1:  # without an array of every card
            ((view, rows),) = outcome.views
            free = np.take_along_axis(view.free_mib, rows, axis=0).sum(axis=0)
            return np.asarray(outcome.taken_mib - free, np.float64)
        left = [np.take_along_axis(outcome.after_mib, rows, axis=0).sum(axis=0) for _, rows in outcome.views]
        return np.asarray(-np.sum(left, axis=0), np.float64)
