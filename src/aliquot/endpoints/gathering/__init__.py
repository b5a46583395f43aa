"""Metrics that are read from the cluster state: who holds what, who uses what, who waits.

Each module is a generator that yields where other work may go first: a cluster of 40,000 pods takes a quarter of a
second, and schedulers wait for their answers meanwhile.
"""

from collections.abc import Iterator

from aliquot.control import ControlPlane
from aliquot.endpoints.gathering import cards, pods, queue
from aliquot.endpoints.gathering.pauses import Pauses


def gather(plane: ControlPlane) -> Iterator[None]:
    """Set the tables of `aliquot.metrics` to the current state."""
    pauses = Pauses(plane.clock)
    for part in (cards, pods, queue):
        yield from part.gather(plane, pauses)
