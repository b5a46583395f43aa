"""Which card of a node a pod gets: each policy ranks every card of the Fleet, the lowest rank wins.

Equal ranks go to the card with the lowest index: the same input gives the same placement.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from aliquot.engine.fleet import Fleet

GpuPolicy = Callable[[Fleet], NDArray[np.int64]]


def tightest(fleet: Fleet) -> NDArray[np.int64]:
    """The card with the least memory left that still suffices: what gpushare does."""
    return fleet.free_mib


GPU_POLICIES: dict[str, GpuPolicy] = {"tightest": tightest}
