"""How busy cards and pods were in the last hour: a ring of half minutes for each, fed by the agents' samples."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aliquot.control.inputs.pod_use import PodUse
from aliquot.model.bounds import MAX_HISTORIES, MIB
from aliquot.model.load import IDLE, CardLoad

PERIOD = 30.0
"""Seconds of a sample of a history: the mean of the cores that came in that time, and the last memory."""
LENGTH = 120
_UNKNOWN = np.uint16(2**16 - 1)
_MILLI = 1000


@dataclass(frozen=True)
class HistoryPoint:
    """`at` is in seconds since the epoch. `cores` are cards."""

    at: float
    cores: float | None
    memory_bytes: int


@dataclass(frozen=True)
class UseHistory:
    """`start` is when the first sample came, which the ring may have forgotten since. `idle_since` is None while it is
    at work, or if that is unknown."""

    start: float
    samples: tuple[HistoryPoint, ...]
    idle_since: float | None


class _Rings:
    """Rings in arrays that grow as they are needed: 720 bytes each."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows: dict[str, int] = {}
        self._free: list[int] = []
        self._cores: NDArray[np.uint16] = np.full((0, LENGTH), _UNKNOWN, np.uint16)
        self._mib: NDArray[np.uint32] = np.zeros((0, LENGTH), np.uint32)
        self._first: NDArray[np.int64] = np.zeros(0, np.int64)
        self._last: NDArray[np.int64] = np.zeros(0, np.int64)
        self._busy: NDArray[np.int64] = np.zeros(0, np.int64)
        """The slot in which it was last at work, or the one before the first."""
        self._count: NDArray[np.int64] = np.zeros(0, np.int64)
        """Samples in the last slot whose cores are known."""

    @property
    def nbytes(self) -> int:
        arrays = (self._cores, self._mib, self._first, self._last, self._busy, self._count)
        return sum(array.nbytes for array in arrays)

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def add(self, name: str, slot: int, cores: float | None, memory_bytes: int) -> None:
        row = self._rows.get(name)
        if row is None:
            if len(self._rows) >= self._most:
                return
            row = self._new(name, slot)
        slot = max(slot, int(self._last[row]))  # a clock that was set back
        self._go_to(row, slot)
        place = slot % LENGTH
        if cores is not None:
            count = int(self._count[row])
            before = int(self._cores[row, place]) if count else 0
            mean = (before * count + cores * _MILLI) / (count + 1)
            self._cores[row, place] = min(round(mean), int(_UNKNOWN) - 1)
            self._count[row] = count + 1
        if cores is None or cores >= IDLE:
            self._busy[row] = slot
        self._mib[row, place] = min(memory_bytes // MIB, 2**32 - 1)

    def get(self, name: str) -> UseHistory | None:
        row = self._rows.get(name)
        if row is None:
            return None
        first, last, busy = int(self._first[row]), int(self._last[row]), int(self._busy[row])
        samples = []
        for slot in range(max(first, last - LENGTH + 1), last + 1):
            cores = int(self._cores[row, slot % LENGTH])
            known = None if cores == _UNKNOWN else cores / _MILLI
            samples.append(HistoryPoint(slot * PERIOD, known, int(self._mib[row, slot % LENGTH]) * MIB))
        return UseHistory(first * PERIOD, tuple(samples), None if busy == last else (busy + 1) * PERIOD)

    def idle_since(self, name: str) -> float | None:
        row = self._rows.get(name)
        if row is None or self._busy[row] == self._last[row]:
            return None
        return (int(self._busy[row]) + 1) * PERIOD

    def forget(self, name: str) -> None:
        if (row := self._rows.pop(name, None)) is not None:
            self._free.append(row)

    def _new(self, name: str, slot: int) -> int:
        if not self._free:
            self._grow()
        row = self._rows[name] = self._free.pop()
        self._cores[row], self._mib[row], self._count[row] = _UNKNOWN, 0, 0
        self._first[row] = self._last[row] = slot
        self._busy[row] = slot - 1
        return row

    def _grow(self) -> None:
        have = len(self._first)
        more = max(64, have // 4)
        self._cores = np.pad(self._cores, ((0, more), (0, 0)))
        self._mib = np.pad(self._mib, ((0, more), (0, 0)))
        self._first, self._last, self._busy, self._count = (
            np.pad(array, (0, more)) for array in (self._first, self._last, self._busy, self._count)
        )
        self._free += range(have + more - 1, have - 1, -1)

    def _go_to(self, row: int, slot: int) -> None:
        """Empty the slots since the last sample: nothing was reported then."""
        last = int(self._last[row])
        if slot > last:
            for passed in range(max(last + 1, slot - LENGTH + 1), slot + 1):
                self._cores[row, passed % LENGTH] = _UNKNOWN
                self._mib[row, passed % LENGTH] = 0
            self._last[row], self._count[row] = slot, 0


class LoadHistory:
    """Of at most so many cards, and as many pods."""

    def __init__(self, most: int = MAX_HISTORIES) -> None:
        self._cards, self._pods = _Rings(most), _Rings(most)
        self._on_node: dict[str, frozenset[str]] = {}
        self._uses: dict[str, PodUse] = {}

    @property
    def nbytes(self) -> int:
        return self._cards.nbytes + self._pods.nbytes

    def take(self, node: str, at: float, cards: Mapping[str, CardLoad], pods: Mapping[str, PodUse]) -> None:
        """What cards by UUID, and pods by UID, used in a sample that came `at` this time (seconds since the epoch)."""
        slot, now = int(at // PERIOD), frozenset(cards)
        for gone in self._on_node.get(node, frozenset()) - now:
            self._cards.forget(gone)
        self._on_node[node] = now
        for uuid, card in cards.items():
            self._cards.add(uuid, slot, card.cores, card.memory_bytes or 0)
        for uid, use in pods.items():
            self._uses[uid] = use
            self._pods.add(uid, slot, use.cores, use.memory_bytes or 0)

    def card(self, uuid: str) -> UseHistory | None:
        return self._cards.get(uuid)

    def use(self, uid: str) -> PodUse | None:
        """What a pod used when its node last reported; None if it has not reported since the pod was placed."""
        return self._uses.get(uid)

    def pod(self, uid: str) -> UseHistory | None:
        return self._pods.get(uid)

    def has_pod(self, uid: str) -> bool:
        return uid in self._pods

    def idle_since(self, uid: str) -> float | None:
        """When a pod was last at work, in seconds since the epoch; None while it is, or if that is unknown."""
        return self._pods.idle_since(uid)

    def forget_node(self, node: str) -> None:
        for uuid in self._on_node.pop(node, frozenset()):
            self._cards.forget(uuid)

    def forget_pod(self, uid: str) -> None:
        self._uses.pop(uid, None)
        self._pods.forget(uid)
