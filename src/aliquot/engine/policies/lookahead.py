"""Looks ahead: a pod goes where the pods to come will leave the least idle.

What a node is worth is worked out by filling it with streams of the expected workload (`engine.forecast`), with its CPU
and memory. A placement costs what it adds to the cards that stay idle in the end, the rooms for large pods that it
takes, where they become scarce, and the cards of a contested model.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np

from aliquot.engine.arrays import Floats, Ints, Ranks
from aliquot.engine.block import Block
from aliquot.engine.forecast.filling import Filling
from aliquot.engine.forecast.scarcity import Demand, Large
from aliquot.engine.view import GpuPolicy, NodePolicy, PolicyOutcome, View
from aliquot.engine.workload import COMMON, WHOLE, CardModel, Workload
from aliquot.model import CORES

_STEP = 0.02
"""Differences below this many cards are chance; the fuller node wins then."""
_FULLER = 0.02 / 8
"""What an idle card of the node costs, so that fuller nodes win where nothing else differs."""
_CONTESTED = 0.4
"""What a card of a model costs that only pods who insist on it should get."""
_MOST_PRESSURE = 1.5
_KEPT = 64
"""Kinds of requests for which the costs of all nodes are kept."""


class LookaheadCards(GpuPolicy):
    name = "lookahead"

    def rank(self, view: View) -> Ranks:
        return _forecast(view.settings.workload or COMMON).cards(view)


class LookaheadNodes(NodePolicy):
    name = "lookahead"

    def score(self, outcome: PolicyOutcome) -> Floats:
        return -_forecast(outcome.settings.workload or COMMON).nodes(outcome)


@lru_cache(4)
def _forecast(workload: Workload) -> "Forecast":
    return Forecast(workload)


@dataclass
class _Kept:
    """Costs of all nodes for one kind of request, up to date until the block's clock `at`."""

    costs: Floats
    lost: Ints
    """[large, 2, width]: rooms for large pods that are lost on a card in use, and on a whole one."""
    at: int = -1


class Forecast:
    """Of one workload. Keeps the costs of every node until the node changes."""

    def __init__(self, workload: Workload) -> None:
        self._filling = Filling(workload)
        self._demand = Demand.of(workload)
        self._kept: WeakKeyDictionary[Block, OrderedDict[Hashable, _Kept]] = WeakKeyDictionary()

    def cards(self, view: View) -> Ranks:
        """What one card's part costs on each card, [rows, width]."""
        block = view.fleet
        if view.count > 1:
            return _idle(block, view.free_mib, view.free_cores, np.s_[:])
        large = self._large(block)
        kept = self._entry(view, (view.part, view.request.host, large), block.has.shape, large)
        self._update(kept, view, large)
        shared, whole = self._scarce(block, large, kept.lost)
        return kept.costs + np.where(block.open_whole, whole, shared) + self._contested(block, view)

    def nodes(self, outcome: PolicyOutcome) -> Floats:
        if len(outcome.seen) == 1 and outcome.seen[0].count == 1:
            ((view, rows),) = outcome.views
            return np.asarray(np.take_along_axis(self.cards(view), rows, axis=0)[0], np.float64)
        return self._whole_nodes(outcome)

    def _whole_nodes(self, outcome: PolicyOutcome) -> Floats:
        block, host = outcome.fleet, outcome.request.host
        large = self._large(block)
        columns = np.flatnonzero(outcome.fits)
        costs = np.full(block.width, np.inf)
        if len(columns):
            idle = _idle(block, outcome.before_mib, outcome.before_cores, columns)
            left = _idle(block, outcome.after_mib, outcome.after_cores, columns)
            cpu, memory = block.host_cpu[columns] - host.cpu, block.host_memory[columns] - host.memory
            added = self._values(block, columns, left, cpu, memory) - self._values(
                block, columns, idle, block.host_cpu[columns], block.host_memory[columns]
            )
            costs[columns] = _stepped(added) + _FULLER * left.sum(axis=0) / WHOLE
            prices = self._prices(block, large)
            took = idle.sum(axis=0) - left.sum(axis=0)
            for each, price in zip(large, prices, strict=True):
                if price:
                    before = each.rooms(_wholes(idle), block.host_cpu[columns], block.host_memory[columns])
                    lost = before - each.rooms(_wholes(left), cpu, memory)
                    costs[columns] += price * np.maximum(0, lost - (took // (each.cards * WHOLE)))
        return costs

    # -- inside

    def _entry(self, view: View, key: Hashable, shape: tuple[int, ...], large: tuple[Large, ...]) -> _Kept:
        if view.free_mib is not view.fleet.free_mib:  # a pod's second container: its first one counts as placed
            return _new(shape, large)
        entries = self._kept.setdefault(view.fleet, OrderedDict())
        kept = entries.pop(key, None)
        if kept is None or kept.costs.shape != shape:
            kept = _new(shape, large)
        entries[key] = kept
        while len(entries) > _KEPT:
            entries.popitem(last=False)
        return kept

    def _update(self, kept: _Kept, view: View, large: tuple[Large, ...]) -> None:
        block = view.fleet
        (columns,) = (block.changed > kept.at).nonzero()
        kept.at = block.clock
        if not len(columns):
            return
        idle = _idle(block, view.free_mib, view.free_cores, columns)
        free_mib, free_cores = view.free_mib - view.need_mib, view.free_cores - view.need_cores
        left = _idle(block, free_mib, free_cores, columns)
        host = view.request.host
        cpu, memory = block.host_cpu[columns], block.host_memory[columns]
        before = self._values(block, columns, idle, cpu, memory)
        fits = (free_mib[:, columns] >= 0) & (free_cores[:, columns] >= 0) & block.sellable[:, columns]
        rows, places = fits.nonzero()
        after = np.array(idle[:, places])
        after[rows, np.arange(len(rows))] = left[rows, places]
        values = self._values(block, columns[places], after, cpu[places] - host.cpu, memory[places] - host.memory)
        costs = np.full(idle.shape, np.inf)
        costs[rows, places] = _stepped(values - before[places]) + _FULLER * after.sum(axis=0) / WHOLE
        kept.costs[:, columns] = costs
        wholes = _wholes(idle)
        for number, each in enumerate(large):
            rooms = each.rooms(wholes, cpu, memory)
            kept.lost[number, 0, columns] = rooms - each.rooms(wholes, cpu - host.cpu, memory - host.memory)
            kept.lost[number, 1, columns] = rooms - each.rooms(wholes - 1, cpu - host.cpu, memory - host.memory)

    def _values(self, block: Block, columns: Ints, idle: Ints, cpu: Ints, memory: Ints) -> Floats:
        """Cards that stay idle on each of these nodes."""
        values = np.zeros(len(columns))
        kinds = block.kind_id[columns]
        for number in np.unique(kinds).tolist():
            kind = block.kinds[number]
            at = kinds == number
            values[at] = self._filling.idle_after(CardModel(kind.model, kind.mib), idle[:, at], cpu[at], memory[at])
        return values

    def _large(self, block: Block) -> tuple[Large, ...]:
        return self._demand.expected(kind for each in block.fleet for kind in _kinds_in_use(each))

    def _prices(self, block: Block, large: tuple[Large, ...]) -> Floats:
        rooms = np.zeros(len(large))
        idle = 0.0
        for each in block.fleet:
            wholes = each.open_whole.sum(axis=0)
            idle += float(each.node_free_cores.sum()) / CORES
            for number, one in enumerate(large):
                rooms[number] += one.rooms(wholes, each.host_cpu, each.host_memory).sum()
        return self._demand.prices(large, rooms.tolist(), self._demand.pods_to_come(idle))

    def _scarce(self, block: Block, large: tuple[Large, ...], lost: Ints) -> tuple[Floats, Floats]:
        prices = self._prices(block, large)
        active = prices.nonzero()[0]
        if not len(active):
            zero = np.zeros(1)
            return zero, zero
        worst = (lost[active] * prices[active, np.newaxis, np.newaxis]).max(axis=0)
        return worst[0], worst[1]

    def _contested(self, block: Block, view: View) -> Floats:
        return np.zeros(1)


def _new(shape: tuple[int, ...], large: tuple[Large, ...]) -> _Kept:
    return _Kept(np.full(shape, np.inf), np.zeros((len(large), 2, shape[1]), np.int64))


def _kinds_in_use(block: Block) -> list:  # type: ignore[type-arg]
    return [block.kinds[number] for number in np.unique(block.kind_id).tolist()]


def _idle(block: Block, free_mib: Ints, free_cores: Ints, columns: Ints | slice) -> Ints:
    """Thousandths of each card that are idle in memory and cores."""
    shares = free_mib[:, columns] * WHOLE // np.maximum(block.mib[:, columns], 1)
    idle = np.minimum(shares, free_cores[:, columns] * (WHOLE // CORES))
    return np.asarray(idle.clip(0, WHOLE) * block.sellable[:, columns])


def _wholes(idle: Ints) -> Ints:
    return np.asarray((idle >= WHOLE).sum(axis=0))


def _stepped(cards: Floats) -> Floats:
    return np.asarray(np.ceil(cards / _STEP - 1e-9) * _STEP)
