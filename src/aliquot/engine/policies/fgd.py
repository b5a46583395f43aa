"""FGD (USENIX ATC'23): a pod goes where it makes the least idle GPU useless for future pods.

An idle share of a card is a fragment for a shape of pod if the card has too little left for it, or if the node cannot
run that shape at all, for lack of cards or of CPU. The measure sums this over the expected workload; a pod goes where
the sum grows least.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from aliquot.engine.arrays import ALL, Bools, Floats, Ints, Ranks
from aliquot.engine.block import Block
from aliquot.engine.kept import Kept
from aliquot.engine.policies.measures import idle_share
from aliquot.engine.view import GpuPolicy, NodePolicy, PolicyOutcome, View
from aliquot.engine.workload import WHOLE, CardModel, PodShape, Workload

_COMMON_SHARE = 0.95


class LeastFragmentingCards(GpuPolicy):
    name = "fgd"

    def rank(self, view: View) -> Ranks:
        return -_points_of_cards(view)


class LeastFragmentingNodes(NodePolicy):
    name = "fgd"

    def score(self, outcome: PolicyOutcome) -> Floats:
        if len(outcome.seen) == 1 and outcome.seen[0].count == 1:
            ((view, rows),) = outcome.views
            return np.asarray(np.take_along_axis(_points_of_cards(view), rows, axis=0)[0], np.float64)
        fleet, parts = outcome.fleet, tuple(container.part for container in outcome.request.containers)
        workload = common(outcome.settings.expected)
        idle = idle_share(fleet, outcome.before_mib, outcome.before_cores, parts)
        left = idle_share(fleet, outcome.after_mib, outcome.after_cores, parts)
        before = fragments(fleet, idle, fleet.host_cpu, workload)
        after = fragments(fleet, left, fleet.host_cpu - outcome.request.host.cpu, workload)
        return _points(after - before, workload).astype(np.float64)

    def score_without_gpu(self, outcome: PolicyOutcome) -> Floats:
        """CPU that goes makes idle GPU useless, too."""
        fleet, workload, asked = outcome.fleet, common(outcome.settings.expected), outcome.request.host.cpu

        def points(columns: Ints) -> Ints:
            idle = idle_share(fleet, fleet.free_mib[:, columns], fleet.free_cores[:, columns], (), columns)
            cpu = fleet.host_cpu[columns]
            before = fragments(fleet, idle, cpu, workload, columns)
            return _points(fragments(fleet, idle, cpu - asked, workload, columns) - before, workload)

        return _KEPT.numbers(fleet, (workload, asked), points).astype(np.float64)


_KEPT = Kept()


def _points_of_cards(view: View) -> Ints:
    """[rows, width]: each card as if only one card's part went there."""
    fleet, workload = view.fleet, common(view.settings.expected)
    need_mib = np.broadcast_to(view.need_mib, view.possible.shape)
    need_cores = np.broadcast_to(view.need_cores, view.possible.shape)

    def points(columns: Ints) -> Ints:
        free_mib, free_cores = view.free_mib[:, columns], view.free_cores[:, columns]
        idle = idle_share(fleet, free_mib, free_cores, (view.part,), columns)
        free_mib, free_cores = free_mib - need_mib[:, columns], free_cores - need_cores[:, columns]
        left = idle_share(fleet, free_mib, free_cores, (view.part,), columns)
        cpu = fleet.host_cpu[columns]
        return _points(_grown(fleet, columns, idle, left, cpu, cpu - view.request.host.cpu, workload), workload)

    if view.free_mib is not fleet.free_mib:  # other containers of the pod come first
        return points(np.arange(fleet.width))
    request = view.request
    containers = tuple((container.part, container.life) for container in request.containers)
    return _KEPT.numbers(fleet, (workload, view.part, containers, request.together, request.host.cpu), points)


def _grown(fleet: Block, columns: Ints, idle: Ints, left: Ints, before: Ints, after: Ints, workload: Workload) -> Ints:
    """By how much the measure of its node grows if a card that has `idle` keeps `left`, and the node's CPU goes from
    `before` to `after`."""
    alone = _usable_alone(fleet, workload, columns)
    elsewhere, here = alone(idle, after), alone(left, after)
    grown = alone(idle, before).sum(axis=0) - elsewhere.sum(axis=0) + elsewhere - here
    grown -= workload.weight * (idle - left)
    for several in _several(workload, fleet, columns):
        had, has = several.taking(idle), several.taking(left)
        total, count = (had * idle).sum(axis=0), had.sum(axis=0)
        total_after, count_after = total + (has * left - had * idle), count + has - had
        grown += several.usable(total, count, before) - several.usable(total_after, count_after, after)
    return np.asarray(grown)


@lru_cache(8)
def common(workload: Workload) -> Workload:
    """The most common shapes, those of 95 percent of the pods: as many as its authors take."""
    shapes: list[PodShape] = []
    for shape in sorted(workload.shapes, key=lambda shape: -shape.weight):
        if sum(each.weight for each in shapes) >= _COMMON_SHARE * workload.weight:
            break
        shapes.append(shape)
    return Workload(tuple(shapes))


def fragments(fleet: Block, idle: Ints, cpu: Ints, workload: Workload, columns: Ints | slice = ALL) -> Ints:
    """The measure of the nodes in these columns, [n]: thousandths of cards, times the workload's weight, so that it is
    exact. `idle` and `cpu` have the same columns."""
    measure = (workload.weight * idle - _usable_alone(fleet, workload, columns)(idle, cpu)).sum(axis=0)
    for several in _several(workload, fleet, columns):
        taking = several.taking(idle)
        measure -= several.usable((taking * idle).sum(axis=0), taking.sum(axis=0), cpu)
    return np.asarray(measure, np.int64)


@dataclass(frozen=True)
class _Alone:
    """How much of an idle share all single-card shapes can use, weighted. It depends only on the card itself and on
    the node's CPU, so it is looked up in a table."""

    table: Ints
    """[levels of CPU, kinds of cards, WHOLE + 1]"""
    cpus: Ints
    """The CPU that shapes ask for, ascending. A node with less than `cpus[n]` and no less than `cpus[n - 1]` has level
    n."""
    kinds: Ints

    def __call__(self, idle: Ints, cpu: Ints) -> Ints:
        levels, kinds, width = self.table.shape
        level = np.searchsorted(self.cpus, cpu, side="right") if levels > 1 else np.zeros(len(cpu), np.int64)
        places = level * (kinds * width) + self.kinds * width + idle
        return np.asarray(self.table.reshape(-1).take(places))


def _usable_alone(fleet: Block, workload: Workload, columns: Ints | slice) -> _Alone:
    table, cpus = _table(workload, _card_models(fleet))
    return _Alone(table, cpus, fleet.type_id[:, columns])


@lru_cache(16)
def _table(workload: Workload, cards: tuple[CardModel, ...]) -> tuple[Ints, Ints]:
    shapes = [shape for shape in workload.shapes if shape.cards == 1]
    cpus = sorted({shape.cpu for shape in shapes if shape.cpu > 0})
    table = np.zeros((len(cpus) + 1, len(cards), WHOLE + 1), np.int64)
    for shape in shapes:
        first = cpus.index(shape.cpu) + 1 if shape.cpu > 0 else 0
        for number, card in enumerate(cards):
            if shape.suits(card):
                table[first:, number, shape.share_of(card) :] += shape.weight
    return table * np.arange(WHOLE + 1), np.array(cpus, np.int64)


@dataclass(frozen=True)
class _Several:
    """Shapes with several cards that ask for the same share of the same models. Whether a node can run them depends on
    all of its cards."""

    least: Ints
    """[rows, width]: the idle share that a card needs."""
    shapes: Sequence[PodShape]

    def taking(self, idle: Ints) -> Bools:
        """Cards that have enough idle."""
        return np.asarray(idle >= self.least)

    def usable(self, total: Ints, count: Ints, cpu: Ints) -> Ints:
        """How much of the `total` on `count` such cards the shapes can use, weighted."""
        runs = sum(shape.weight * ((count >= shape.cards) & (cpu >= shape.cpu)) for shape in self.shapes)
        return np.asarray(runs * total)


def _several(workload: Workload, fleet: Block, columns: Ints | slice) -> list[_Several]:
    kinds, type_id = _kinds(workload, _card_models(fleet)), fleet.type_id[:, columns]
    return [_Several(np.array(shares, np.int64)[type_id], shapes) for shares, shapes in kinds.items()]


@lru_cache(16)
def _kinds(workload: Workload, cards: tuple[CardModel, ...]) -> Mapping[tuple[int, ...], Sequence[PodShape]]:
    """The shapes with several cards, by the share that they need of each of these cards."""
    alike: dict[tuple[int, ...], list[PodShape]] = {}
    for shape in workload.shapes:
        if shape.cards > 1:
            shares = tuple(shape.share_of(card) if shape.suits(card) else WHOLE + 1 for card in cards)
            alike.setdefault(shares, []).append(shape)
    return alike


def _card_models(fleet: Block) -> tuple[CardModel, ...]:
    """Of every type of card; at least one, so that there is something to look up where there is no card."""
    return tuple(CardModel(kind.gpu.model, kind.gpu.mib) for kind in fleet.types) or (CardModel("", 0),)


def _points(grown: Ints, workload: Workload) -> Ints:
    """How good it is that the measure has `grown`, from 0 to 100, and 50 if it has not. Rounded as its authors round:
    within a point the first fit wins."""
    cards = grown / (workload.weight * WHOLE)
    return np.floor(100.0 / (1.0 + np.exp(np.clip(cards, -700.0, 700.0)))).astype(np.int64)
