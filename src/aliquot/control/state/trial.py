"""Trial placements on the cluster state: take parts for pods one by one, and release all of them at the end."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from aliquot.control.state.cluster_state import ClusterState
from aliquot.dialects import Demand
from aliquot.errors import NoRoom
from aliquot.model import Placement, Request


class Scratch:
    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._taken: list[tuple[str, str]] = []

    def take(self, request: Request, placement: Placement) -> bool:
        """Take a placement found before. Returns whether it is still free and the pod holds nothing there yet."""
        if self._cluster.ledger.entry(request.uid, placement.node) is not None:
            return False
        try:
            self._cluster.totals.claim(request, placement)
        except NoRoom:
            return False
        self._taken.append((request.uid, placement.node))
        return True

    def place(self, demand: Demand, among: Collection[str] | None, is_open: Callable[[str], bool]) -> Placement | None:
        """Take the best placement among these nodes (None: all) that are open to the pod."""
        judgement = self._cluster.judge(demand, among)
        node = judgement.best(among)
        if node is not None and not is_open(node):  # rare; checking thousands of nodes is slow
            node = judgement.best(filter(is_open, judgement.fleet.nodes if among is None else among))
        placement = judgement.placement(node) if node is not None else None
        return placement if placement is not None and self.take(demand.request, placement) else None

    def give_back(self) -> None:
        for uid, node in reversed(self._taken):
            self._cluster.totals.release(uid, node)


@contextmanager
def trying(cluster: ClusterState) -> Iterator[Scratch]:
    """Try placements, only for pods that hold nothing. Nothing is recorded, so no event may happen meanwhile."""
    recorder, cluster.recorder = cluster.recorder, None
    scratch = Scratch(cluster)
    try:
        yield scratch
    finally:
        scratch.give_back()
        cluster.recorder = recorder
