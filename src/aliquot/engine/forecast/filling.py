"""How much of a node stays idle when the expected workload fills it."""

from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np

from aliquot.engine.arrays import Floats, Ints
from aliquot.engine.forecast.streams import SHARE_STEP, STREAMS, Streams, streams_for
from aliquot.engine.workload import WHOLE, CardModel, Workload

_CPU_STEP, _MEMORY_STEP = 1000, 16 * 1024
"""Nodes whose CPU and memory differ by less than this count as equal, so that few have to be worked out."""
_MOST_STEPS = (1 << 16) - 1
_REMEMBERED = 1 << 17


class Filling:
    """Of one workload. Remembers every node state that it has worked out."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._known: dict[tuple[CardModel, int], dict[bytes, float]] = {}

    def idle_after(self, card: CardModel, idle: Ints, cpu: Ints, memory: Ints) -> Floats:
        """[n]: cards that stay idle on each of n nodes. `idle` is [rows, n], in thousandths."""
        rows, count = idle.shape
        known = self._known.setdefault((card, rows), {})
        if len(known) > _REMEMBERED:
            known.clear()
        states = np.empty((count, rows + 2), np.uint16)
        states[:, :rows] = np.sort((idle + SHARE_STEP // 2) // SHARE_STEP, axis=0).T
        states[:, rows] = (cpu // _CPU_STEP).clip(0, _MOST_STEPS)
        states[:, rows + 1] = (memory // _MEMORY_STEP).clip(0, _MOST_STEPS)
        data, size = states.tobytes(), states.itemsize * (rows + 2)
        keys = [data[at : at + size] for at in range(0, len(data), size)]
        values = [known.get(key, -1.0) for key in keys]
        if -1.0 in values:
            streams = streams_for(self._workload, card, rows)
            for place, key in enumerate(keys):
                if values[place] < 0:
                    if key not in known:
                        *shares, cores, steps = states[place].tolist()
                        known[key] = _left(streams, shares, cores * _CPU_STEP, steps * _MEMORY_STEP)
                    values[place] = known[key]
        return np.array(values, np.float64)


def _left(streams: Streams, idle: Sequence[int], cpu: int, memory: int) -> float:
    """The mean over all streams of what stays idle, in cards. `idle` is ascending, in steps. Each pod of a stream that
    fits takes the fullest cards that have room for it."""
    share_of, cpu_of, memory_of = streams.needs
    (fitting,) = ((share_of <= idle[-1]) & (cpu_of <= cpu) & (memory_of <= memory)).nonzero()
    left, current = sum(idle) * STREAMS, -1
    cards, cpu_left, memory_left = list(idle), cpu, memory
    for place in fitting.tolist():
        stream, count, share, pod_cpu, pod_memory = streams.pods[place]
        if stream != current:
            current, cards, cpu_left, memory_left = stream, list(idle), cpu, memory
        if share > cards[-count] or pod_cpu > cpu_left or pod_memory > memory_left:
            continue
        first = bisect_left(cards, share)
        taken = cards[first : first + count]
        del cards[first : first + count]
        for card in taken:
            insort(cards, card - share)
        left -= count * share
        cpu_left -= pod_cpu
        memory_left -= pod_memory
    return left * SHARE_STEP / (STREAMS * WHOLE)
