"""Which nodes a filter has let a pod pass on, a moment ago: a bind acts on no other.

It is kept in memory alone. A server that has just begun to lead remembers nothing: it refuses the bind, and
kube-scheduler filters the pod again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aliquot.clock import Clock
from aliquot.control.state.remembered import Remembered
from aliquot.engine import Fleet, Ints, NameBlock, NameTable
from aliquot.model.bounds import MAX_PASSES, MAX_PASSES_OF_NAMESPACE, MAX_UNKNOWN

SECONDS = 960.0
"""kube-scheduler lets a pod wait between filter and bind for at most 15 minutes (Permit)."""


@dataclass(frozen=True, slots=True)
class _Pass:
    table: NameTable
    """Finds a node's column as it was then."""
    columns: NDArray[np.uint8]
    """A bit for each."""
    asked: int
    until: float

    def names(self, node: str) -> bool:
        (column,) = self.table.find(NameBlock.of([node]))
        return column >= 0 and bool(np.unpackbits(self.columns, count=column + 1)[-1:].any())


class Passes:
    """Pods that our mirror does not know yet have a smaller place of their own: made-up ones do not push the others
    out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known = Remembered[_Pass](MAX_PASSES, MAX_PASSES_OF_NAMESPACE)
        self._unknown = Remembered[_Pass](MAX_UNKNOWN, MAX_UNKNOWN)

    def __len__(self) -> int:
        return len(self._known) + len(self._unknown)

    def put(
        self, uid: str, fleet: Fleet, columns: Ints | Sequence[int], *, asked: int, namespace: str | None = None
    ) -> None:
        """The columns of the nodes that a pod has passed on, as the last filter said; -1 is a node without one. `asked`
        stands for what it asks (`asked_by`), `namespace` is that of a pod of our mirror."""
        self.forget(uid)
        if not len(columns):
            return
        passed = np.zeros(len(fleet.names) + 1, np.bool_)  # the last one is for -1
        passed[columns] = True
        place = self._known if namespace is not None else self._unknown
        now = self._clock.monotonic()
        place.put(uid, namespace or "", _Pass(fleet.table, np.packbits(passed[:-1]), asked, now + SECONDS))
        oldest = next(iter(place.uids))
        if (first := place.get(oldest)) is not None and first.until <= now:
            place.forget(oldest)

    def has(self, uid: str, node: str, asked: int) -> bool:
        """Whether a pod passed on a node. One that our mirror did not know then must ask for what the filter was told;
        of one that it knew, what it asked for was compared then, and may have been rewritten since."""
        passed, early = self._known.get(uid), self._unknown.get(uid)
        if passed is None and early is not None and early.asked == asked:
            passed = early
        return passed is not None and passed.until > self._clock.monotonic() and passed.names(node)

    def forget(self, uid: str) -> None:
        self._known.forget(uid)
        self._unknown.forget(uid)
