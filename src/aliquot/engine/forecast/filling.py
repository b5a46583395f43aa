"""How much of a node stays idle when the expected workload fills it."""

from bisect import bisect_left, insort
from itertools import pairwise

import numpy as np

from aliquot.engine.arrays import Floats, Ints
from aliquot.engine.card_kinds import NodeKind
from aliquot.engine.forecast.filling_many import left_of_many
from aliquot.engine.forecast.streams import SHARE_STEP, STREAMS, Streams, streams_for
from aliquot.engine.workload import WHOLE, CardModel, Workload

_HOST_STEPS = 48
"""Nodes of one kind whose CPU and memory differ by less than such a part count as equal, so that few have to be worked
out."""
_MOST_STEPS = (1 << 16) - 1
_REMEMBERED = 1 << 17
"""Node states, of all kinds together: some 25 MB."""
_MANY = 32
"""So many nodes are filled together, step by step: after a start there are thousands to fill, before one decision."""


class Filling:
    """Of one workload. Remembers every node state that it has worked out."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._known: dict[tuple[NodeKind, int], dict[bytes, float]] = {}

    def idle_after(self, kind: NodeKind, idle: Ints, cpu: Ints, memory: Ints) -> Floats:
        """[n]: cards that stay idle on each of n nodes of one kind. `idle` is [rows, n], in thousandths."""
        rows, count = idle.shape
        known = self._known.setdefault((kind, rows), {})
        cpu_step, memory_step = (max(1, each // _HOST_STEPS) for each in (kind.host.cpu, kind.host.memory))
        if sum(map(len, self._known.values())) > _REMEMBERED:
            for each in self._known.values():
                each.clear()
        states = np.empty((count, rows + 2), np.uint16)
        states[:, :rows] = np.sort((idle + SHARE_STEP // 2) // SHARE_STEP, axis=0).T
        states[:, rows] = np.minimum(np.maximum(cpu // cpu_step, 0), _MOST_STEPS)
        states[:, rows + 1] = np.minimum(np.maximum(memory // memory_step, 0), _MOST_STEPS)
        data, size = states.tobytes(), states.itemsize * (rows + 2)
        keys = [data[at : at + size] for at in range(0, len(data), size)]
        values = [known.get(key, -1.0) for key in keys]
        if -1.0 in values:
            streams = streams_for(self._workload, CardModel(kind.model, kind.mib), rows)
            new = {key: place for place, key in enumerate(keys) if values[place] < 0}
            if len(new) < _MANY:
                for key, place in new.items():
                    *shares, cpu_steps, memory_steps = states[place].tolist()
                    known[key] = _left(streams, shares, cpu_steps * cpu_step, memory_steps * memory_step)
            else:
                left = left_of_many(streams, states[list(new.values())].astype(np.int64), cpu_step, memory_step)
                known |= zip(new, left.tolist(), strict=True)
            values = [known[key] for key in keys]
        return np.array(values, np.float64)


def _left(streams: Streams, idle: list[int], cpu: int, memory: int) -> float:
    """The mean over all streams of what stays idle, in cards. `idle` is ascending, in steps. Each pod of a stream that
    fits takes the fullest cards that have room for it."""
    share_of, cpu_of, memory_of = streams.needs
    (fits,) = ((share_of <= idle[-1]) & (cpu_of <= cpu) & (memory_of <= memory)).nonzero()
    fitting, pods = fits.tolist(), streams.pods  # others will not fit later, either
    left = sum(idle) * STREAMS
    for first, last in pairwise(fits.searchsorted(streams.starts).tolist()):
        cards, most, cpu_left, memory_left = idle.copy(), idle[-1], cpu, memory
        for place in fitting[first:last]:
            share, pod_cpu, pod_memory, count = pods[place]
            if share > most or pod_cpu > cpu_left or pod_memory > memory_left or share > cards[-count]:
                continue
            at = bisect_left(cards, share)
            if count == 1:
                insort(cards, cards.pop(at) - share)
            else:
                for card in [cards.pop(at) for _ in range(count)]:
                    insort(cards, card - share)
            left -= count * share
            most, cpu_left, memory_left = cards[-1], cpu_left - pod_cpu, memory_left - pod_memory
            if most < streams.least_share or cpu_left < streams.least_cpu:
                break
    return left * SHARE_STEP / (STREAMS * WHOLE)
