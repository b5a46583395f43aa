"""Streams of pods, drawn from the expected workload: each is one possible future of a node."""

import random
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from aliquot.engine.arrays import Ints
from aliquot.engine.workload import WHOLE, CardModel, PodShape, Workload

STREAMS = 16
LENGTH = 32
"""Pods in a stream: about as many as a node is offered while it fills up. In a much longer stream every gap finds a pod
that fits, which is not so: such pods are as scarce as others."""


_NEVER = 1 << 30


@dataclass(frozen=True)
class Streams:
    """[STREAMS, LENGTH] each: what the pods ask of a node with a certain model of cards."""

    cards: Ints
    share: Ints
    """More than WHOLE where a pod cannot run on such a card."""
    needs: Ints
    """The share of one card; of several cards, WHOLE and the number of further cards."""
    cpu: Ints
    memory: Ints


@lru_cache(64)
def streams_for(workload: Workload, card: CardModel) -> Streams:
    drawn = _drawn(workload)
    shapes = workload.shapes
    share = [shape.share_of(card) if shape.suits(card) else WHOLE + 1 for shape in shapes]
    return Streams(
        cards=np.array([max(1, shape.cards) for shape in shapes], np.int32)[drawn],
        share=np.array(share, np.int32)[drawn],
        needs=np.array([_need(shape, each) for shape, each in zip(shapes, share, strict=True)], np.int32)[drawn],
        cpu=np.array([shape.cpu for shape in shapes], np.int32)[drawn],
        memory=np.array([shape.memory for shape in shapes], np.int32)[drawn],
    )


@lru_cache(8)
def _drawn(workload: Workload) -> NDArray[np.int64]:
    """[STREAMS, LENGTH]: numbers of shapes. Every step draws from all strata of the workload, one for each stream (a
    Latin hypercube), so that few streams stand for the whole. Pods without GPU are left out."""
    order = sorted(
        (number for number, shape in enumerate(workload.shapes) if shape.cards),
        key=lambda number: _size(workload, number),
    )
    if not order:
        return np.zeros((STREAMS, 0), np.int64)
    sums = list(accumulate(workload.shapes[number].weight for number in order))
    chance = random.Random(LENGTH)
    steps = []
    for _ in range(LENGTH):
        strata = sorted(range(STREAMS), key=lambda _: chance.random())
        places = [(stratum + chance.random()) / STREAMS * sums[-1] for stratum in strata]
        steps.append(np.array(order)[np.searchsorted(sums, places, side="right").clip(0, len(order) - 1)])
    return np.array(steps, np.int64).T.copy()


def _size(workload: Workload, number: int) -> tuple[int, int, int, int]:
    shape = workload.shapes[number]
    return shape.cards, shape.share, shape.cpu, number


def _need(shape: PodShape, share: int) -> int:
    if share > WHOLE:
        return _NEVER
    return share if shape.cards == 1 else WHOLE + shape.cards - 1
