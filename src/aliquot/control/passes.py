"""Which nodes a filter has let a pod pass on, a moment ago: a bind acts on no other.

It is kept in memory alone. A server that has just begun to lead remembers nothing: it refuses the bind, and
kube-scheduler filters the pod again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aliquot.clock import Clock
from aliquot.engine import Fleet, Ints, NameBlock, NameTable
from aliquot.model.bounds import MOST_PASSES, MOST_UNKNOWN_PASSES

SECONDS = 960.0
"""kube-scheduler lets a pod wait between filter and bind for at most 15 minutes (Permit)."""


@dataclass(frozen=True, slots=True)
class _Pass:
    table: NameTable
    """Finds a node's column as it was then."""
    columns: NDArray[np.uint8]
    """A bit for each."""
    until: float

    def names(self, node: str) -> bool:
        (column,) = self.table.find(NameBlock.of([node]))
        return column >= 0 and bool(np.unpackbits(self.columns, count=column + 1)[-1:].any())


class Passes:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, _Pass] = {}
        self._unknown: dict[str, _Pass] = {}

    def __len__(self) -> int:
        return len(self._known) + len(self._unknown)

    def put(self, uid: str, fleet: Fleet, columns: Ints | Sequence[int], *, is_known: bool) -> None:
        """The columns of the nodes that a pod has passed on, as the last filter said; -1 is a node without one."""
        self.forget(uid)
        if not len(columns):
            return
        passed = np.zeros(len(fleet.names) + 1, np.bool_)  # the last one is for -1
        passed[columns] = True
        place, most = (self._known, MOST_PASSES) if is_known else (self._unknown, MOST_UNKNOWN_PASSES)
        place[uid] = _Pass(fleet.table, np.packbits(passed[:-1]), self._clock.monotonic() + SECONDS)
        oldest = next(iter(place))
        if len(place) > most or place[oldest].until <= self._clock.monotonic():
            del place[oldest]

    def has(self, uid: str, node: str) -> bool:
        passed = self._known.get(uid) or self._unknown.get(uid)
        return passed is not None and passed.until > self._clock.monotonic() and passed.names(node)

    def forget(self, uid: str) -> None:
        self._known.pop(uid, None)
        self._unknown.pop(uid, None)
