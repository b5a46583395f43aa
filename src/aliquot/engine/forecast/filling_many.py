"""Fills many nodes of one kind at once: the same as `filling`, step by step over all nodes and streams."""

import numpy as np

from aliquot.engine.arrays import Floats, Ints
from aliquot.engine.forecast.streams import SHARE_STEP, STREAMS, Streams
from aliquot.engine.workload import WHOLE

_AT_ONCE = 4096
"""Cards whose arrays fit into a processor's cache."""
_NEVER = np.iinfo(np.int16).max


def left_of_many(streams: Streams, states: Ints, cpu_step: int, memory_step: int) -> Floats:
    """[n]: the cards that stay idle, for states [n, rows + 2]: steps of each card, of CPU and of memory."""
    nodes = max(1, _AT_ONCE // states.shape[1])
    parts = [states[start : start + nodes] for start in range(0, len(states), nodes)]
    left = [_left(streams, part[:, :-2].T, part[:, -2] * cpu_step, part[:, -1] * memory_step) for part in parts]
    return np.concatenate(left)


def _left(streams: Streams, idle: Ints, cpu: Ints, memory: Ints) -> Floats:
    rows, count = idle.shape
    # a number that orders cards by what they have left, and that no other card of the node has
    numbers = (idle * rows + np.arange(rows)[:, np.newaxis]).astype(np.int16)
    cards = np.repeat(numbers[:, np.newaxis], STREAMS, axis=1)
    cpu_left, memory_left = (np.repeat(each[np.newaxis], STREAMS, axis=0) for each in (cpu, memory))
    taken = np.zeros(count, np.int64)
    for step in streams.steps:
        for several, at, share, pod_cpu, pod_memory in step:
            fits = (cpu_left[at] >= pod_cpu) & (memory_left[at] >= pod_memory)
            if not fits.any():
                continue
            own, need = cards[:, at], share * np.int16(rows)
            candidates = np.where(own >= need, own, _NEVER)
            last = candidates.min(axis=0) if several == 1 else np.sort(candidates, axis=0)[several - 1]
            fits &= last < _NEVER
            if not fits.any():
                continue
            cards[:, at] = own - ((candidates <= last) & fits) * need
            cpu_left[at] -= fits * pod_cpu
            memory_left[at] -= fits * pod_memory
            taken += (fits * (several * share)).sum(axis=0, dtype=np.int64)
    return np.asarray((idle.sum(axis=0) * STREAMS - taken) * SHARE_STEP / (STREAMS * WHOLE), np.float64)
