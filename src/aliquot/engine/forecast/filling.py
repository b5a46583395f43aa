"""How much of a node stays idle when the expected workload fills it."""

import numpy as np

from aliquot.engine.arrays import Floats, Ints
from aliquot.engine.forecast.streams import Streams, streams_for
from aliquot.engine.workload import WHOLE, CardModel, Workload

_SHARE_STEP, _CPU_STEP, _MEMORY_STEP = 10, 500, 2048
"""Nodes whose cards, CPU and memory differ by less than this count as equal, so that few have to be worked out."""
_MOST_CPU, _MOST_MEMORY = (1 << 30) // _CPU_STEP, (1 << 30) // _MEMORY_STEP
_REMEMBERED = 1 << 18
_AT_ONCE = 64


class Filling:
    """Of one workload. Remembers every node state that it has worked out."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._known: dict[int, float] = {}

    def idle_after(self, card: CardModel, idle: Ints, cpu: Ints, memory: Ints) -> Floats:
        """[n]: cards that stay idle on each of n nodes, with `idle` thousandths [rows, n] of their cards left."""
        shares = np.sort(idle // _SHARE_STEP, axis=0)[::-1]
        cpu, memory = (cpu // _CPU_STEP).clip(0, _MOST_CPU), (memory // _MEMORY_STEP).clip(0, _MOST_MEMORY)
        keys = _keys(card, shares, cpu, memory)
        unique, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        known = self._known
        missing = [place for place, key in enumerate(unique.tolist()) if key not in known]
        if missing:
            if len(known) > _REMEMBERED:
                known.clear()
                missing = list(range(len(unique)))
            streams = streams_for(self._workload, card)
            for start in range(0, len(missing), _AT_ONCE):
                some = missing[start : start + _AT_ONCE]
                at = first[some]
                left = _fill(streams, shares[:, at].T * _SHARE_STEP, cpu[at] * _CPU_STEP, memory[at] * _MEMORY_STEP)
                known.update(zip(unique[some].tolist(), left.tolist(), strict=True))
        values = np.fromiter(map(known.__getitem__, unique.tolist()), np.float64, len(unique))
        return np.asarray(values[inverse.ravel()])


def _keys(card: CardModel, shares: Ints, cpu: Ints, memory: Ints) -> Ints:
    """A number per node that only equal nodes share, up to a chance of one in 2^64."""
    keys = np.full(shares.shape[1], np.uint64(hash(card) & _ALL), np.uint64)
    for column in (*shares, cpu, memory):
        keys = (keys ^ column.astype(np.uint64)) * _MIX
        keys ^= keys >> np.uint64(29)
    return np.asarray(keys.view(np.int64))


_ALL = (1 << 64) - 1
_MIX = np.uint64(0xBF58476D1CE4E5B9)


def _fill(streams: Streams, idle: Ints, cpu: Ints, memory: Ints) -> Floats:
    """[n]: the mean over all streams of what stays idle of each of n nodes, in cards. `idle` is [n, rows], descending.

    Each pod of a stream that fits takes the fullest cards that have room for it. A pod that does not fit now never
    will, so every turn goes straight to the next pod that does, on all nodes and streams at once.
    """
    (nodes, rows), (count, length) = idle.shape, streams.cards.shape
    left = np.zeros((nodes, count), np.int64)
    at = np.arange(nodes)
    idle = np.repeat(idle[:, np.newaxis].astype(np.int32), count, axis=1)
    cpu, memory = (np.repeat(array[:, np.newaxis].astype(np.int32), count, axis=1) for array in (cpu, memory))
    waiting = np.ones((nodes, count, length), np.bool_)
    turns, each = np.arange(rows), np.arange(count)
    while len(at):
        waiting &= streams.needs <= _room(idle)[..., np.newaxis]
        waiting &= streams.cpu <= cpu[..., np.newaxis]
        waiting &= streams.memory <= memory[..., np.newaxis]
        following = waiting.argmax(axis=2)
        taken = np.take_along_axis(waiting, following[..., np.newaxis], axis=2)[..., 0]
        goes_on = taken.any(axis=1)
        if not goes_on.all():
            left[at[~goes_on]] = idle[~goes_on].sum(axis=2)
            at, idle, cpu, memory, waiting, following, taken = (
                array[goes_on] for array in (at, idle, cpu, memory, waiting, following, taken)
            )
        np.put_along_axis(waiting, following[..., np.newaxis], False, axis=2)
        share, cards = streams.share[each, following] * taken, streams.cards[each, following]
        cpu -= streams.cpu[each, following] * taken
        memory -= streams.memory[each, following] * taken
        enough = (idle >= share[..., np.newaxis]).sum(axis=2)
        chosen = (turns < enough[..., np.newaxis]) & (turns >= (enough - cards)[..., np.newaxis])
        idle -= share[..., np.newaxis] * chosen
        idle = -np.sort(-idle, axis=2)
    return left.mean(axis=1) / WHOLE


def _room(idle: Ints) -> Ints:
    """The largest idle share of a node; with several whole cards, their number counts, too (`Streams.needs`)."""
    return np.asarray(idle[..., 0] + np.maximum((idle >= WHOLE).sum(axis=-1) - 1, 0))
