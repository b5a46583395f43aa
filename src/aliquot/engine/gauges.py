"""What a cluster looks like at one moment: how much is allocated, how much of the rest is of use to expected pods."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aliquot.engine.arrays import Bools, Ints
from aliquot.engine.block import Block
from aliquot.engine.fleet import Fleet
from aliquot.engine.policies.fgd import common, fragments
from aliquot.engine.policies.measures import idle_share
from aliquot.engine.workload import WHOLE, CardModel, PodShape, Workload
from aliquot.model import CORES, Memory, Part

_BOTH = (Part(cores=CORES, memory=Memory(1)),)
"""A card is idle as far as both its memory and its cores are."""
_COLUMNS = 1024
"""Nodes that are measured in one step."""


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


@dataclass(frozen=True)
class Expected:
    """The pods to expect: `workload` as FGD's authors count them, without the memory of nodes, for their measure; and
    `needs`, with memory, of which no shape needs as much as another one and more."""

    workload: Workload
    needs: Sequence[PodShape]

    @classmethod
    def of(cls, workload: Workload, with_memory: Workload | None = None) -> "Expected":
        """Only common shapes count. `with_memory` has the memory of nodes too, if `workload` has not."""
        asked = common(with_memory or workload).shapes
        needs = dict.fromkeys(replace(shape, weight=1) for shape in asked if shape.cards)
        return cls(common(workload), [need for need in needs if not any(_is_more(need, other) for other in needs)])


def _is_more(need: PodShape, other: PodShape) -> bool:
    """Whether a pod of the same size needs more of the node than another one."""
    alike = replace(need, cpu=other.cpu, memory=other.memory) == other
    return alike and need != other and need.cpu >= other.cpu and need.memory >= other.memory


def gauge(fleet: Fleet, expected: Expected) -> Gauge:
    steps = gauging(fleet, expected)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            measured: Gauge = done.value
            return measured


def gauging(fleet: Fleet, expected: Expected) -> Generator[None, None, Gauge]:
    """The same in steps of a few milliseconds, for those who have other work. If the Fleet changes meanwhile, so does
    what is measured."""
    parts: list[Gauge] = []
    for block in fleet.blocks:
        part = yield from _of_block(block, expected)
        parts += (part,)
    return Gauge(
        sum(part.idle for part in parts),
        sum(part.fragments for part in parts),
        sum(part.stranded for part in parts),
        sum(part.starved for part in parts),
        tuple(_merged(model for part in parts for model in part.models)),
    )


def _of_block(block: Block, expected: Expected) -> Generator[None, None, Gauge]:
    idle = idle_share(block, block.free_mib, block.free_cores, _BOTH)
    weighted = 0
    for start in range(0, block.width, _COLUMNS):
        own = slice(start, start + _COLUMNS)
        weighted += int(fragments(block, idle[:, own], block.host_cpu[own], expected.workload, own).sum())
        yield
    cards = [CardModel(kind.gpu.model, kind.gpu.mib) for kind in block.types]
    of_use, with_more = np.zeros(idle.shape, np.bool_), np.zeros(idle.shape, np.bool_)
    for shape in expected.needs:
        runs = _takes(block, idle, cards, shape)
        with_more |= runs
        of_use |= runs & (block.host_cpu >= shape.cpu) & (block.host_memory >= shape.memory)
        yield
    stranded = np.where(of_use, 0, idle)
    return Gauge(
        int(idle.sum()),
        weighted / expected.workload.weight,
        int(stranded.sum()),
        int(stranded[with_more].sum()),
        tuple(_by_model(block, idle, stranded)),
    )


def _takes(block: Block, idle: Ints, cards: Sequence[CardModel], shape: PodShape) -> Bools:
    """Cards that the shape could use, if the node has enough CPU and memory."""
    takes = idle >= _least(shape, cards, block.type_id)
    return np.asarray(takes & (takes.sum(axis=0) >= shape.cards))


def _least(shape: PodShape, cards: Sequence[CardModel], type_id: Ints) -> Ints:
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
