"""The points of nodes, as schedulers want them: whole numbers, and one node ahead of all others.

A scheduler chooses at random among nodes with equal points. Rounded scores are equal on most good nodes, so the best
node by the engine's own rule gets a point that no other node has.
"""

import numpy as np

from aliquot.engine import Ints, Standings

BEST = 10
_OTHERS = 9


def points(standings: Standings) -> Ints:
    """Points from 0 to 10. Only the best node has 10, or the best nodes if the policy leaves ties to the scheduler. The
    others have up to 9, in proportion to their scores, so that they still count beside scores of the scheduler's own
    that have more weight. Nodes that do not fit have 0."""
    scores, fits = standings.scores, ~np.isnan(standings.scores)
    least, most = scores[fits].min(initial=np.inf), scores[fits].max(initial=-np.inf)
    share = (scores - least) / (most - least) if least < most else np.ones(len(scores))
    return np.where(standings.best, BEST, np.rint(np.where(fits, share, 0) * _OTHERS).astype(np.int64))
