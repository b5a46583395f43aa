"""The workload as the cluster shows it: every GPU pod is counted once, by its shape."""

from collections.abc import Collection

from aliquot.dialects import Dialects, demand_of
from aliquot.engine import CountsRecord, ShapeCounts
from aliquot.errors import BadDemand
from aliquot.model import Pod


class SeenShapes:
    """Pods count when they are first seen, bound or not, and also if they never fit anywhere."""

    def __init__(self, dialects: Dialects) -> None:
        self._dialects = dialects
        self.counts = ShapeCounts()
        self.uids: set[str] = set()
        """Pods that were counted and that the cluster still has."""

    def see(self, pod: Pod) -> bool:
        """Returns whether the pod is counted now."""
        uid = pod.metadata.uid
        if uid in self.uids or not pod.asks_extended:
            return False
        try:
            demand = demand_of(pod, self._dialects)
        except BadDemand:
            return False
        if demand is None:
            return False
        self.uids.add(uid)
        self.counts.add(demand.request)
        return True

    def forget(self, uid: str) -> bool:
        """A pod is gone; its shape still counts. Returns whether it was counted."""
        is_known = uid in self.uids
        self.uids.discard(uid)
        return is_known

    def restore(self, record: CountsRecord, uids: Collection[str]) -> None:
        self.counts = ShapeCounts(record)
        self.uids = set(uids)
