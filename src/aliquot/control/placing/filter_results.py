"""Nodes that a recent filter passed for a pod: a bind accepts no other node.

They live in memory only. A new leader remembers nothing, so it refuses the bind, and kube-scheduler filters the pod
again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aliquot.clock import Clock
from aliquot.control.state.bounded_map import BoundedMap
from aliquot.dialects import Demand
from aliquot.engine import Fleet, Ints, NameBlock, NameTable
from aliquot.model.bounds import MAX_PASSES, MAX_PASSES_OF_NAMESPACE, MAX_UNKNOWN

SECONDS = 960.0
"""kube-scheduler delays a pod between filter and bind by at most 15 minutes (Permit)."""


@dataclass(frozen=True, slots=True)
class _Pass:
    table: NameTable
    """Finds a node's column at the time of the filter."""
    columns: NDArray[np.uint8]
    """A bit per column."""
    asked: int
    until: float

    def names(self, node: str) -> bool:
        (column,) = self.table.find(NameBlock.of([node]))
        return column >= 0 and bool(np.unpackbits(self.columns, count=column + 1)[-1:].any())


class FilterResults:
    """Filter results by pod. Pods missing from the informer cache have a smaller store, so that invented pods do not
    push out others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known = BoundedMap[_Pass](MAX_PASSES, MAX_PASSES_OF_NAMESPACE)
        self._unknown = BoundedMap[_Pass](MAX_UNKNOWN, MAX_UNKNOWN)

    def __len__(self) -> int:
        return len(self._known) + len(self._unknown)

    def put(
        self, uid: str, fleet: Fleet, columns: Ints | Sequence[int], *, asked: int, namespace: str | None = None
    ) -> None:
        """Store the node columns that the last filter passed for a pod; -1 is a node without a column. `asked` hashes
        its demand (`demand_hash`). `namespace` is set for a pod in the informer cache."""
        if not len(columns):
            self.forget(uid)
            return
        passed = np.zeros(fleet.width + 1, np.bool_)  # the last entry is for -1
        passed[columns] = True
        place, other = (self._known, self._unknown) if namespace is not None else (self._unknown, self._known)
        other.forget(uid)
        now = self._clock.monotonic()
        place.put(uid, namespace or "", _Pass(fleet.table, np.packbits(passed[:-1]), asked, now + SECONDS))
        oldest = next(iter(place.uids))
        if (first := place.get(oldest)) is not None and first.until <= now:
            place.forget(oldest)

    def has(self, uid: str, node: str, asked: int) -> bool:
        """Whether a pod passed on a node. A pod that was missing from the informer cache must still ask for what the
        filter saw. A cached pod was compared then, and its demand may have been rewritten since."""
        passed, early = self._known.get(uid), self._unknown.get(uid)
        if passed is None and early is not None and early.asked == asked:
            passed = early
        return passed is not None and passed.until > self._clock.monotonic() and passed.names(node)

    def forget(self, uid: str) -> None:
        self._known.forget(uid)
        self._unknown.forget(uid)


def demand_hash(demand: Demand | None) -> int:
    """Hash what a pod asks for. It stays the same while request, name and priority stay the same. A stored result is
    not valid for another demand."""
    return hash((demand.dialect.name, demand.request)) if demand is not None else 0
