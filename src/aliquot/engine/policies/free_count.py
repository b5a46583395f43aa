"""nvidia-gpu-scheduler's score: the number of free cards of the requested model. If the pod names no model, all nodes
are equal."""

import numpy as np

from aliquot.engine.all_nodes.room import wanted_models
from aliquot.engine.arrays import Floats
from aliquot.engine.view import NodePolicy, PolicyOutcome


class FreeCountNodes(NodePolicy):
    name = "free-count"
    leaves_ties = True

    def score(self, outcome: PolicyOutcome) -> Floats:
        wanted = wanted_models(outcome.fleet, outcome.request)
        if wanted is None:
            return np.zeros(outcome.fleet.width)
        return np.asarray((outcome.fleet.open_whole & wanted).sum(axis=0), np.float64)
