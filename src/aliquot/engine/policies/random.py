"""Random, but repeatable for the same pod: a hash of its UID and the name of the node or card."""

from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from aliquot.engine.arrays import Floats, Ints, Ranks
from aliquot.engine.block import Block
from aliquot.engine.view import GpuPolicy, NodePolicy, PolicyOutcome, View


class RandomCards(GpuPolicy):
    name = "random"

    def rank(self, view: View) -> Ranks:
        return lots_of_cards(view.fleet, view.request.uid)


class RandomNodes(NodePolicy):
    name = "random"

    def score(self, outcome: PolicyOutcome) -> Floats:
        return _lots_of_nodes(outcome.fleet, outcome.request.uid).astype(np.float64)


def lots_of_cards(fleet: Block, uid: str) -> Ints:
    """A non-negative number for each card, from its node's name and its row."""
    rows = np.arange(1, fleet.rows + 1, dtype=np.uint64)[:, np.newaxis]
    return _mix(_lots_of_nodes(fleet, uid) + rows * _STEP)


def _lots_of_nodes(fleet: Block, uid: str) -> NDArray[np.uint64]:
    names = np.fromiter(map(_hash, fleet.names), np.uint64, fleet.width)
    return _mix(names ^ np.uint64(_hash(uid))).astype(np.uint64)


@lru_cache(1 << 16)
def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


_STEP = np.uint64(0x9E3779B97F4A7C15)


def _mix(numbers: NDArray[np.uint64]) -> Ints:
    """splitmix64: similar inputs give unrelated outputs. 63 bits, so that it fits a signed integer."""
    numbers = numbers + _STEP
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((numbers ^ (numbers >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)
