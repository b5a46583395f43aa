"""What a placement costs on every node, in cards, kept until a node changes.

A placement costs what it adds to the cards that stay idle in the end, the rooms for large pods that it takes where they
become scarce, and the cards of a contested model.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from aliquot.engine.arrays import Bools, Floats, Ints
from aliquot.engine.block import Block
from aliquot.engine.card_kinds import NodeKind
from aliquot.engine.forecast.filling import Filling
from aliquot.engine.forecast.now import Now, idle_shares
from aliquot.engine.forecast.scarcity import Demand, Rooms
from aliquot.engine.workload import WHOLE, Workload
from aliquot.model import Host

_STEP = 0.02
"""Differences below this many cards are chance; the fuller node wins then."""
_FULLER = 0.02 / 8
"""What an idle card of the node costs, so that fuller nodes win where nothing else differs."""
_KEPT = 128
"""Kinds of requests for which the costs of all nodes are kept."""


@dataclass(frozen=True)
class Ask:
    """What a pod takes of a node: `need_*` of each of `cards` cards, and of its CPU and memory. The arrays broadcast to
    [rows, width]."""

    cards: int
    need_mib: Ints
    need_cores: Ints
    host: Host


@lru_cache(4)
def forecast(workload: Workload) -> "Forecast":
    return Forecast(workload)


@dataclass
class _Kept:
    """The costs of one kind of request: [options, width]. A pod with one card has an option per card, others have
    one."""

    wasted: Floats
    lost: Ints
    """[2, width]: which rooms are lost on a card in use, and on a whole one; an index into `losses`."""
    took: Floats
    """[width]: the cards that the pod takes."""
    total: Floats
    losses: list[Ints] = field(default_factory=list)
    numbers: dict[bytes, int] = field(default_factory=dict)
    prices: bytes = b""
    at: int = -1


@dataclass(frozen=True)
class _Prices:
    rooms: Floats
    models: Floats
    """By number of the block's kinds of nodes."""
    key: bytes


class Forecast:
    """Of one workload."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._filling = Filling(workload)
        self._kinds: tuple[NodeKind, ...] = ()
        self._demand = Demand(workload, ())
        self._rooms: WeakKeyDictionary[Block, Rooms] = WeakKeyDictionary()
        self._kept: WeakKeyDictionary[Block, OrderedDict[Hashable, _Kept]] = WeakKeyDictionary()

    def costs(self, block: Block, ask: Ask, containers: Hashable = ()) -> Floats:
        """[rows, width] for a pod with one card, [1, width] for others. Costs of nodes without room have no meaning.
        Equal `containers` have equal needs. The next call changes the result."""
        prices = self._prices(block)
        kept = self._entry(block, ask, (containers, ask.host))
        (columns,) = (block.changed > kept.at).nonzero()
        if len(columns):
            kept.at = block.clock
            self._work_out(kept, block, ask, columns)
        if kept.prices != prices.key:
            kept.prices = prices.key
            self._add_up(kept, block, np.arange(block.width), prices)
        elif len(columns):
            self._add_up(kept, block, columns, prices)
        return kept.total

    def _entry(self, block: Block, ask: Ask, key: Hashable) -> _Kept:
        entries = self._kept.setdefault(block, OrderedDict())
        kept = entries.pop(key, None)
        if kept is None or kept.total.shape[1] != block.width:
            kept = _new(block.rows if ask.cards == 1 else 1, block.width)
        entries[key] = kept
        if len(entries) > _KEPT:
            entries.popitem(last=False)
        return kept

    def costs_after(self, block: Block, columns: Ints, after: Ints, cards: int, host: Host) -> Floats:
        """[n]: for a pod with several containers, `cards` cards together, that leaves `after` thousandths [rows, n] of
        the cards in these columns."""
        prices = self._prices(block)
        kept = _new(1, block.width)
        each = np.arange(len(columns))
        options = _Options(columns, Now.of(block, columns), np.zeros_like(each), each, after)
        self._settle(kept, block, options, cards, host)
        self._add_up(kept, block, columns, prices)
        return np.asarray(kept.total[0, columns])

    def _work_out(self, kept: _Kept, block: Block, ask: Ask, columns: Ints) -> None:
        """Everything but prices, for nodes that have changed and have room."""
        free_mib = block.free_mib[:, columns] - _at(ask.need_mib, columns)
        free_cores = block.free_cores[:, columns] - _at(ask.need_cores, columns)
        fits = (free_mib >= 0) & (free_cores >= 0) & block.sellable[:, columns]
        room = fits.sum(axis=0) >= ask.cards
        if not room.all():
            columns, fits, free_mib, free_cores = columns[room], fits[:, room], free_mib[:, room], free_cores[:, room]
        if len(columns):
            now, left = Now.of(block, columns), idle_shares(block, columns, free_mib, free_cores)
            options = _one_card if ask.cards == 1 else _tightest_cards
            self._settle(kept, block, options(columns, now, left, fits, ask.cards), ask.cards, ask.host)

    def _settle(self, kept: _Kept, block: Block, options: "_Options", cards: int, host: Host) -> None:
        columns, now, rows, at, after = options.columns, options.now, options.rows, options.at, options.after
        cpu, memory = now.cpu - host.cpu, now.memory - host.memory
        before = self._values(block, columns, now.idle, now.cpu, now.memory)
        added = self._values(block, columns[at], after, cpu[at], memory[at]) - before[at]
        idle = after.sum(axis=0)
        wasted = np.zeros((len(kept.wasted), len(columns)))
        wasted[rows, at] = np.ceil(added / _STEP - 1e-9) * _STEP + _FULLER * idle / WHOLE
        kept.wasted[:, columns] = wasted if options.twins is None else np.take_along_axis(wasted, options.twins, axis=0)
        kept.took[columns[at]] = (now.idle.sum(axis=0)[at] - idle) / WHOLE
        own = self._demand.covered(cards, host.cpu, host.memory)[:, np.newaxis]
        rooms = self._rooms[block]
        taken = (0, 1) if len(wasted) > 1 else (now.whole - (after == WHOLE).sum(axis=0),)
        for plane, whole in enumerate(taken):
            lost = rooms.left[:, columns] - rooms.on(block, columns, now.whole - whole, cpu, memory) - own
            kept.lost[plane, columns] = _numbered(kept, np.maximum(lost, 0))

    def _add_up(self, kept: _Kept, block: Block, columns: Ints, prices: _Prices) -> None:
        total = kept.wasted[:, columns]
        if kept.losses and prices.rooms.any():
            worst = (np.array(kept.losses) * prices.rooms).max(axis=1)[kept.lost[:, columns]]
            total += np.where(block.open_whole[:, columns], worst[1], worst[0]) if len(total) > 1 else worst[0]
        if prices.models.any():
            total += prices.models[block.kind_id[columns]] * kept.took[columns]
        kept.total[:, columns] = total

    def _values(self, block: Block, columns: Ints, idle: Ints, cpu: Ints, memory: Ints) -> Floats:
        """Cards that stay idle on each of these nodes."""
        kinds = block.kind_id[columns]
        numbers = np.unique(kinds).tolist()
        values = np.zeros(len(columns))
        for number in numbers:
            at = kinds == number if len(numbers) > 1 else slice(None)
            values[at] = self._filling.idle_after(block.kinds[number], idle[:, at], cpu[at], memory[at])
        return values

    def _prices(self, block: Block) -> _Prices:
        fleet = list(block.fleet)
        kinds = tuple(kind for each in fleet for kind in each.kinds_in_use)
        if kinds != self._kinds:
            self._kinds, self._demand = kinds, Demand(self._workload, kinds)
            self._rooms.clear()
            self._kept.clear()
        total, idle = np.zeros(len(self._demand.large), np.int64), 0.0
        for each in fleet:
            rooms = self._rooms.get(each)
            if rooms is None or rooms.idle.shape != (each.width,):
                rooms = self._rooms[each] = Rooms(each, self._demand)
            rooms.update(each)
            total += rooms.total
            idle += float(rooms.idle.sum())
        rooms_cost = self._demand.prices(total, idle)
        models = self._model_prices(block, fleet)
        return _Prices(rooms_cost, models, rooms_cost.tobytes() + models.tobytes())

    def _model_prices(self, block: Block, fleet: Sequence[Block]) -> Floats:
        """[kinds of the block]"""
        if not self._demand.is_particular:
            return np.zeros(len(block.kinds))
        idle: dict[str, float] = {}
        for each in fleet:
            by_kind = np.bincount(each.kind_id, self._rooms[each].idle, len(each.kinds)).tolist()
            for kind, cards in zip(each.kinds, by_kind, strict=True):
                idle[kind.model] = idle.get(kind.model, 0.0) + cards
        models = list(idle)
        prices = dict(zip(models, self._demand.pressure(models, np.array(list(idle.values()))).tolist(), strict=True))
        return np.array([prices[kind.model] for kind in block.kinds])


def _at(need: Ints, columns: Ints) -> Ints:
    return need if need.ndim == 0 or need.shape[-1] == 1 else need[..., columns]


@dataclass(frozen=True)
class _Options:
    """n ways to place a pod on some columns: on the card in row `rows[n]` of column `columns[at[n]]`, which leaves
    `after[:, n]`. `twins` leads from every card to the one that stands for it."""

    columns: Ints
    now: Now
    rows: Ints
    at: Ints
    after: Ints
    twins: Ints | None = None


def _one_card(columns: Ints, now: Now, left: Ints, fits: Bools, _cards: int) -> _Options:
    twins = _twins(now.idle, left)
    rows, at = (fits & (twins == np.arange(len(twins))[:, np.newaxis])).nonzero()
    after = now.idle[:, at]
    after[rows, np.arange(len(at))] = left[rows, at]
    return _Options(columns, now, rows, at, after, twins)


def _tightest_cards(columns: Ints, now: Now, left: Ints, fits: Bools, cards: int) -> _Options:
    after, each = now.idle.copy(), np.arange(len(columns))
    if cards:
        rows = np.argsort(np.where(fits, now.idle, WHOLE + 1), axis=0, kind="stable")[:cards]
        np.put_along_axis(after, rows, np.take_along_axis(left, rows, axis=0), axis=0)
    return _Options(columns, now, np.zeros_like(each), each, after)


def _new(options: int, width: int) -> _Kept:
    lost = np.zeros((2, width), np.int64)
    return _Kept(np.zeros((options, width)), lost, np.zeros(width), np.zeros((options, width)))


def _twins(idle: Ints, left: Ints) -> Ints:
    """[rows, n]: for each card the first one of its node that is as idle, before and after."""
    alike = idle * (WHOLE + 1) + left
    return np.asarray((alike[np.newaxis] == alike[:, np.newaxis]).argmax(axis=1))


def _numbered(kept: _Kept, lost: Ints) -> Ints:
    """[n]: equal columns have equal numbers: of thousands of nodes most lose the same rooms."""
    small: NDArray[np.int16] = np.ascontiguousarray(lost.T.astype(np.int16))
    data, size = small.tobytes(), small.itemsize * small.shape[1]
    numbers = []
    for place in range(len(small)):
        key = data[place * size : (place + 1) * size]
        number = kept.numbers.get(key)
        if number is None:
            number = kept.numbers[key] = len(kept.losses)
            kept.losses.append(lost[:, place])
        numbers.append(number)
    return np.array(numbers, np.int64)
