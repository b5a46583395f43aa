"""nvidia-gpu-scheduler's score: how many free cards of the wanted model a node has; without a wish nodes are equal."""

import numpy as np

from aliquot.engine.all_nodes.room import wanted_models
from aliquot.engine.arrays import Floats
from aliquot.engine.view import NodePolicy, Outcome


class FreeCountNodes(NodePolicy):
    name = "free-count"

    def score(self, outcome: Outcome) -> Floats:
        wanted = wanted_models(outcome.fleet, outcome.request)
        if wanted is None:
            return np.zeros(outcome.fleet.width)
        return np.asarray((outcome.fleet.open_whole & wanted).sum(axis=0), np.float64)
