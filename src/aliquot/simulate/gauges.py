"""What a cluster looks like at one moment: how much is allocated, how much of the rest is of use to expected pods."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from aliquot.engine import Bools, Fleet, Ints
from aliquot.engine.block import Block
from aliquot.engine.policies.fgd import common
from aliquot.engine.policies.measures import idle_share
from aliquot.engine.workload import WHOLE, CardModel, PodShape, Workload
from aliquot.model import CORES, Memory, Part

_BOTH = (Part(cores=CORES, memory=Memory(1)),)
"""A card is idle as far as both its memory and its cores are."""


@dataclass(frozen=True)
class ModelGauge:
    """Of all cards of a model: thousandths of cards."""

    model: str
    cards: int
    idle: int
    stranded: int


@dataclass(frozen=True)
class Gauge:
    """Thousandths of cards.

    `fragments` is FGD's measure: what a pod drawn from the workload finds idle and cannot use, on average. `stranded`
    is idle, and no pod of the workload can use it on its node. It is `starved` if only CPU or memory of the node is
    missing."""

    idle: int
    fragments: float
    stranded: int
    starved: int
    models: tuple[ModelGauge, ...] = ()


def gauge(fleet: Fleet, workload: Workload) -> Gauge:
    """Only common shapes of the workload count, as FGD's authors count them."""
    expected = common(workload)
    parts = [_of_block(block, expected) for block in fleet.blocks]
    return Gauge(
        sum(part.idle for part in parts),
        sum(part.fragments for part in parts),
        sum(part.stranded for part in parts),
        sum(part.starved for part in parts),
        tuple(_merged(model for part in parts for model in part.models)),
    )


def _of_block(block: Block, workload: Workload) -> Gauge:
    idle = idle_share(block, block.free_mib, block.free_cores, _BOTH)
    total, weight = int(idle.sum()), workload.weight
    of_use = np.zeros(idle.shape, np.bool_)
    with_cpu = np.zeros(idle.shape, np.bool_)
    usable = 0
    cards = [CardModel(kind.gpu.model, kind.gpu.mib) for kind in block.types]
    for shape in workload.shapes:
        if shape.cards:
            takes = idle >= _least(shape, cards, block.type_id)
            runs = takes & (takes.sum(axis=0) >= shape.cards)
            with_cpu |= runs
            runs &= (block.host_cpu >= shape.cpu) & (block.host_memory >= shape.memory)
            of_use |= runs
            usable += shape.weight * int(idle[runs].sum())
    stranded = np.where(of_use, 0, idle)
    return Gauge(
        total,
        total - usable / weight,
        int(stranded.sum()),
        int(stranded[with_cpu].sum()),
        tuple(_by_model(block, idle, stranded)),
    )


def _least(shape: PodShape, cards: list[CardModel], type_id: Ints) -> Ints:
    """The idle share that each card needs for the shape; more than a whole card if it never takes it."""
    shares = [shape.share_of(card) if shape.suits(card) else WHOLE + 1 for card in cards]
    return np.array([*shares, WHOLE + 1], np.int64)[type_id]


def _by_model(block: Block, idle: Ints, stranded: Ints) -> Iterable[ModelGauge]:
    for number, model in enumerate(block.models):
        own: Bools = block.sellable & (block.model_id == number)
        if own.any():
            yield ModelGauge(model, int(own.sum()), int(idle[own].sum()), int(stranded[own].sum()))


def _merged(models: Iterable[ModelGauge]) -> Iterable[ModelGauge]:
    sums: dict[str, list[int]] = {}
    for each in models:
        own = sums.setdefault(each.model, [0, 0, 0])
        sums[each.model] = [own[0] + each.cards, own[1] + each.idle, own[2] + each.stranded]
    return (ModelGauge(model, *numbers) for model, numbers in sorted(sums.items()))
