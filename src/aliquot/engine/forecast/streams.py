"""Streams of pods, drawn from the expected workload: each is one possible future of a node."""

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aliquot.engine.arrays import Ints
from aliquot.engine.workload import WHOLE, CardModel, PodShape, Workload

_MANY_LONG, _MANY_SHORT = 16, 8
STREAMS = _MANY_LONG + _MANY_SHORT
_LONG, _SHORT = (48, 4.5), (12, 1.1)
"""Pods in a long and in a short stream: at least so many, and so many that they would fill the node so often.

Long ones are about as many as a node is offered while a cluster fills up. In a much longer stream every gap finds a pod
that fits, which is not so: such pods are as scarce as others. Short ones are about as many as come to a full cluster
until a pod of the node ends."""
_LONGEST = 192
SHARE_STEP = 10
"""Shares of cards are rounded to this many thousandths."""


class StreamPod(NamedTuple):
    share: int
    """Of each card, in SHARE_STEPs."""
    cpu: int
    memory: int
    cards: int


_NO_POD = StreamPod(WHOLE // SHARE_STEP + 1, 0, 0, 1)
"""It fits on no card."""


class StreamStep(NamedTuple):
    """One pod for each of n `streams`, all with the same number of cards. Arrays are [n, 1]."""

    cards: int
    streams: Ints | slice
    share: NDArray[np.int16]
    cpu: Ints
    memory: Ints


@dataclass(frozen=True)
class Streams:
    """The pods of all streams that a node with a certain number of cards of one model could run at all, one stream
    after the other, the longest first."""

    pods: Sequence[StreamPod]
    starts: Ints
    """Where each stream starts, and where the last one ends."""

    @cached_property
    def needs(self) -> Ints:
        """[3, pods]: share, CPU and memory."""
        return np.array([pod[:3] for pod in self.pods], np.int64).reshape(-1, 3).T.copy()

    @cached_property
    def steps(self) -> Sequence[Sequence[StreamStep]]:
        """The n-th pod of every stream that has one, by the number of their cards."""
        streams = [self.pods[start:end] for start, end in pairwise(self.starts.tolist())]
        most = max(map(len, streams), default=0)
        return [_steps_of([stream[at] for stream in streams if at < len(stream)]) for at in range(most)]

    @cached_property
    def least_share(self) -> int:
        return min((pod.share for pod in self.pods), default=0)

    @cached_property
    def least_cpu(self) -> int:
        return min((pod.cpu for pod in self.pods), default=0)


@lru_cache(64)
def streams_for(workload: Workload, card: CardModel, rows: int) -> Streams:
    """The streams of nodes with up to `rows` such cards."""
    runs = {
        shape: StreamPod(_steps(shape.share_of(card)), shape.cpu, shape.memory, shape.cards)
        for shape in workload.shapes
        if shape.suits(card) and shape.share_of(card) <= WHOLE and shape.cards <= rows
    }
    asked = sum(shape.weight * pod.cards * pod.share for shape, pod in runs.items()) * SHARE_STEP / WHOLE
    pods = sum(shape.weight for shape in workload.shapes if shape.cards)
    fill = rows * pods / asked if asked else 0.0  # so many pods of the workload fill the node once
    drawn = _drawn(workload, _length(_LONG, fill), _length(_SHORT, fill))
    streams = [[runs[shape] for shape in stream if shape in runs] for stream in drawn]
    streams.sort(key=len, reverse=True)
    starts = list(accumulate(map(len, streams), initial=0))
    return Streams([pod for stream in streams for pod in stream], np.array(starts, np.int64))


def _length(length: tuple[int, float], fill: float) -> int:
    least, times = length
    return min(_LONGEST, max(least, ceil(fill * times)))


def _steps_of(pods: Sequence[StreamPod]) -> list[StreamStep]:
    """Single cards come for all streams at once, which is fastest: most pods ask for one."""
    singles = [pod if pod.cards == 1 else _NO_POD for pod in pods]
    steps = [] if singles == [_NO_POD] * len(pods) else [_step(1, slice(len(pods)), singles)]
    for cards in sorted({pod.cards for pod in pods} - {1}):
        at = [stream for stream, pod in enumerate(pods) if pod.cards == cards]
        steps.append(_step(cards, np.array(at, np.int64), [pods[stream] for stream in at]))
    return steps


def _step(cards: int, at: Ints | slice, pods: Sequence[StreamPod]) -> StreamStep:
    share, cpu, memory = np.array([pod[:3] for pod in pods], np.int64).T[..., np.newaxis].copy()
    return StreamStep(cards, at, share.astype(np.int16), cpu, memory)


@lru_cache(8)
def _drawn(workload: Workload, long: int, short: int) -> Sequence[Sequence[PodShape]]:
    """The shapes of each stream. Every step draws from all strata of the workload, one for each stream (a Latin
    hypercube), so that few streams stand for the whole. Pods without GPU are left out."""
    shapes = sorted((shape for shape in workload.shapes if shape.cards), key=_size)
    if not shapes:
        return []
    sums = list(accumulate(shape.weight for shape in shapes))
    chance = random.Random(STREAMS)
    streams: list[list[PodShape]] = [[] for _ in range(STREAMS)]
    for step in range(long):
        growing = streams if step < short else streams[:_MANY_LONG]
        strata = sorted(range(len(growing)), key=lambda _: chance.random())
        for stream, stratum in zip(growing, strata, strict=True):
            place = bisect_right(sums, (stratum + chance.random()) / len(growing) * sums[-1])
            stream.append(shapes[min(place, len(shapes) - 1)])
    return streams


def _size(shape: PodShape) -> tuple[int, int, int, int, int, tuple[str, ...]]:
    return shape.cards, shape.share, shape.mib, shape.cpu, shape.memory, shape.models


def _steps(share: int) -> int:
    """Rounded to the nearest step: three thirds of a card fit on it."""
    return max(1, (share + SHARE_STEP // 2) // SHARE_STEP)
