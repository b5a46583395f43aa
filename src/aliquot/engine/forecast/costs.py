"""What a placement costs on every node, in cards, kept until a node changes.

A placement costs what it adds to the cards that stay idle in the end, the rooms for large pods that it takes where they
become scarce, and the cards of a contested model.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from aliquot.engine.arrays import Bools, Floats, Ints, SmallFloats
from aliquot.engine.block import Block
from aliquot.engine.card_kinds import NodeKind
from aliquot.engine.forecast.filling import Filling
from aliquot.engine.forecast.present import Present, idle_shares
from aliquot.engine.forecast.scarcity import Demand
from aliquot.engine.workload import WHOLE, Workload
from aliquot.model import Host

_STEP = 0.02
"""Differences below this many cards are chance; the fuller node wins then."""
_FULLER = 0.02 / 8
"""What an idle card of the node costs, so that fuller nodes win where nothing else differs."""
_KEPT = 96
"""Kinds of requests for which the costs of all nodes are kept."""
_SPARE_LOSSES = 1024
"""Besides two for each node. A kind of request that has seen more is worked out anew: nodes have changed since."""


@dataclass(frozen=True)
class Ask:
    """What a pod takes of a node: `need_*` of each of `cards` cards, and of its CPU and memory. The arrays broadcast to
    [rows, width]."""

    cards: int
    need_mib: Ints
    need_cores: Ints
    host: Host


class Cost(NamedTuple):
    """In cards."""

    wasted: float
    """Cards that stay idle in the end, and a little for each idle card."""
    rooms: float
    """Rooms for large pods that are lost."""
    model: float
    """Cards of a contested model."""


@dataclass
class _Kept:
    """The costs of one kind of request: [options, width]. A pod with one card has an option per card, others have
    one. In small numbers: there are many of these."""

    wasted: SmallFloats
    lost: NDArray[np.int32]
    """[2, width]: which rooms are lost on a card in use, and on a whole one; an index into `losses`."""
    took: SmallFloats
    """[width]: the cards that the pod takes."""
    total: SmallFloats
    losses: list[bytes] = field(default_factory=list)
    numbers: dict[bytes, int] = field(default_factory=dict)
    worst: Floats = field(default_factory=lambda: np.zeros(0))
    """The price of each of `losses`: that of the dearest room."""
    prices: bytes = b""
    at: int = -1

    @classmethod
    def new(cls, options: int, width: int) -> "_Kept":
        wasted, total = (np.zeros((options, width), np.float32) for _ in range(2))
        return cls(wasted, np.zeros((2, width), np.int32), np.zeros(width, np.float32), total)

    def number(self, lost: Ints) -> Ints:
        """[n]: the number of each column of `lost` in `losses`: of thousands of nodes most lose the same rooms."""
        small = np.ascontiguousarray(lost.T.astype(np.int16))
        data, size = small.tobytes(), small.itemsize * small.shape[1]
        keys = [data[start : start + size] for start in range(0, len(data), size)] if size else [b""] * len(small)
        numbers = [self.numbers.get(key, -1) for key in keys]
        for place, number in enumerate(numbers):
            if number < 0:
                key = keys[place]
                if key not in self.numbers:
                    self.numbers[key] = len(self.losses)
                    self.losses.append(key)
                numbers[place] = self.numbers[key]
        return np.array(numbers, np.int64)

    def price(self, rooms: Floats) -> None:
        """Price the losses that have no price yet."""
        new = self.losses[len(self.worst) :]
        if new:
            lost = np.frombuffer(b"".join(new), np.int16).reshape(len(new), len(rooms))
            self.worst = np.append(self.worst, (lost * rooms).max(axis=1, initial=0.0))


@dataclass(frozen=True)
class _Prices:
    rooms: Floats
    models: Floats
    """By number of the block's kinds of nodes."""
    key: bytes
    clocks: Hashable
    """Of all blocks, when the prices were worked out."""


@dataclass(frozen=True)
class _Options:
    """n ways to place a pod on some columns: on the card in row `rows[n]` of column `columns[at[n]]`, which leaves
    `after[:, n]`. `twins` leads from every card to the one that stands for it."""

    columns: Ints
    rows: Ints
    at: Ints
    after: Ints
    twins: Ints | None = None


@lru_cache(2)
def forecast(workload: Workload) -> "Forecast":
    return Forecast(workload)


class Forecast:
    """Of one workload."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._filling = Filling(workload)
        self._kinds: tuple[NodeKind, ...] = ()
        self._demand = Demand(workload, ())
        self._presents: WeakKeyDictionary[Block, Present] = WeakKeyDictionary()
        self._priced: WeakKeyDictionary[Block, _Prices] = WeakKeyDictionary()
        self._kept: WeakKeyDictionary[Block, OrderedDict[Hashable, _Kept]] = WeakKeyDictionary()

    def costs(self, block: Block, ask: Ask, containers: Hashable = ()) -> SmallFloats:
        """[rows, width] for a pod with one card, [1, width] for others. Costs of nodes without room have no meaning.
        Equal `containers` have equal needs. The next call changes the result."""
        return self._up_to_date(block, ask, containers)[0].total

    def cost_at(self, block: Block, ask: Ask, row: int, column: int, containers: Hashable = ()) -> "Cost":
        """What the cost of one option is made of."""
        return _parts(*self._up_to_date(block, ask, containers), block, row, column)

    def _up_to_date(self, block: Block, ask: Ask, containers: Hashable) -> tuple[_Kept, _Prices]:
        prices = self._prices(block)
        kept = self._entry(block, ask, (containers, ask.host))
        (columns,) = (block.changed > kept.at).nonzero()
        if len(columns):
            kept.at = block.clock
            self._work_out(kept, block, ask, columns)
        if kept.prices != prices.key:
            kept.prices, kept.worst = prices.key, np.zeros(0)
            _add_up(kept, block, np.arange(block.width), prices)
        elif len(columns):
            _add_up(kept, block, columns, prices)
        return kept, prices

    def costs_after(self, block: Block, columns: Ints, free: tuple[Ints, Ints], cards: int, host: Host) -> Floats:
        """[n]: for a pod with several containers, `cards` cards together, that leaves so much memory and cores of the
        cards in these columns free."""
        kept, _ = self._after(block, columns, free, cards, host)
        return np.asarray(kept.total[0, columns])

    def cost_after(self, block: Block, column: int, free: tuple[Ints, Ints], cards: int, host: Host) -> "Cost":
        """What the cost of one column is made of."""
        return _parts(*self._after(block, np.array([column]), free, cards, host), block, 0, column)

    def _after(
        self, block: Block, columns: Ints, free: tuple[Ints, Ints], cards: int, host: Host
    ) -> tuple[_Kept, _Prices]:
        prices, kept, each = self._prices(block), _Kept.new(1, block.width), np.arange(len(columns))
        after = idle_shares(block, columns, *free)
        self._settle(kept, block, _Options(columns, np.zeros_like(each), each, after), cards, host)
        _add_up(kept, block, columns, prices)
        return kept, prices

    def _entry(self, block: Block, ask: Ask, key: Hashable) -> _Kept:
        entries = self._kept.setdefault(block, OrderedDict())
        kept = entries.pop(key, None)
        most = 2 * block.width + _SPARE_LOSSES
        if kept is None or kept.total.shape[1] != block.width or len(kept.losses) > most:
            kept = _Kept.new(block.rows if ask.cards == 1 else 1, block.width)
        entries[key] = kept
        if len(entries) > _KEPT:
            entries.popitem(last=False)
        return kept

    def _work_out(self, kept: _Kept, block: Block, ask: Ask, columns: Ints) -> None:
        """Everything but prices, for nodes that have changed and have room."""
        free_mib = block.free_mib[:, columns] - _at(ask.need_mib, columns)
        free_cores = block.free_cores[:, columns] - _at(ask.need_cores, columns)
        fits = (free_mib >= 0) & (free_cores >= 0) & block.sellable[:, columns]
        room = fits.sum(axis=0) >= ask.cards
        if not room.all():
            columns, fits, free_mib, free_cores = columns[room], fits[:, room], free_mib[:, room], free_cores[:, room]
        if len(columns):
            present = self._presents[block]
            idle, left = present.idle[:, columns], idle_shares(block, columns, free_mib, free_cores)
            options = _one_card if ask.cards == 1 else _tightest_cards
            self._settle(kept, block, options(columns, idle, left, fits, ask.cards), ask.cards, ask.host)

    def _settle(self, kept: _Kept, block: Block, options: _Options, cards: int, host: Host) -> None:
        present, columns, rows, at = self._presents[block], options.columns, options.rows, options.at
        after = options.after
        cpu, memory = block.host_cpu[columns] - host.cpu, block.host_memory[columns] - host.memory
        added = present.wasted_after(block, columns[at], after, cpu[at], memory[at]) - present.wasted[columns][at]
        idle = after.sum(axis=0)
        wasted = np.zeros((len(kept.wasted), len(columns)))
        wasted[rows, at] = np.ceil(added / _STEP - 1e-9) * _STEP + _FULLER * idle / WHOLE
        kept.wasted[:, columns] = wasted if options.twins is None else np.take_along_axis(wasted, options.twins, axis=0)
        kept.took[columns[at]] = (present.idle_sum[columns][at] - idle) / WHOLE
        whole = present.whole[columns]
        left = np.stack([whole, whole - 1]) if len(wasted) > 1 else (after == WHOLE).sum(axis=0)[np.newaxis]
        own = self._demand.covered(cards, host.cpu, host.memory)[:, np.newaxis]
        had = present.rooms[:, columns] - own
        lost = np.maximum(had[:, np.newaxis] - present.rooms_after(block, columns, left, cpu, memory), 0)
        kept.lost[: len(left), columns] = kept.number(lost.reshape(len(lost), left.size)).reshape(left.shape)

    def _prices(self, block: Block) -> _Prices:
        fleet = tuple(block.fleet)
        clocks = tuple((each.clock, each.width) for each in fleet)
        known = self._priced.get(block)
        if known is None or known.clocks != clocks:
            known = self._priced[block] = self._price(block, fleet, clocks)
        return known

    def _price(self, block: Block, fleet: Sequence[Block], clocks: Hashable) -> _Prices:
        kinds = tuple(kind for each in fleet for kind in each.kinds_in_use)
        if kinds != self._kinds:
            self._kinds, self._demand = kinds, Demand(self._workload, kinds)
            self._presents.clear()
            self._priced.clear()
            self._kept.clear()
        rooms, idle = np.zeros(len(self._demand.large), np.int64), 0
        for each in fleet:
            present = self._presents.get(each)
            if present is None or present.width != each.width:
                present = self._presents[each] = Present(each, self._filling, self._demand)
            present.update(each)
            rooms += present.all_rooms
            idle += int(present.idle_sum.sum())
        prices, models = self._demand.prices(rooms, idle / WHOLE), self._model_prices(block, fleet)
        return _Prices(prices, models, prices.tobytes() + models.tobytes(), clocks)

    def _model_prices(self, block: Block, fleet: Sequence[Block]) -> Floats:
        """[kinds of the block]"""
        if not self._demand.is_particular:
            return np.zeros(len(block.kinds))
        idle: dict[str, float] = {}
        for each in fleet:
            by_kind = np.bincount(each.kind_id, self._presents[each].idle_sum, len(each.kinds)).tolist()
            for kind, thousandths in zip(each.kinds, by_kind, strict=True):
                idle[kind.model] = idle.get(kind.model, 0.0) + thousandths
        pressure = self._demand.pressure(list(idle), np.array(list(idle.values())) / WHOLE)
        prices = dict(zip(idle, pressure.tolist(), strict=True))
        return np.array([prices[kind.model] for kind in block.kinds])


def _parts(kept: _Kept, prices: _Prices, block: Block, row: int, column: int) -> Cost:
    wasted = float(kept.wasted[row, column])
    model = float(prices.models[block.kind_id[column]] * kept.took[column])
    return Cost(wasted, float(kept.total[row, column]) - wasted - model, model)


def _add_up(kept: _Kept, block: Block, columns: Ints, prices: _Prices) -> None:
    total = kept.wasted[:, columns]
    kept.price(prices.rooms)
    if kept.losses and prices.rooms.any():
        worst = kept.worst[kept.lost[:, columns]]
        total += np.where(block.open_whole[:, columns], worst[1], worst[0]) if len(total) > 1 else worst[0]
    if prices.models.any():
        total += prices.models[block.kind_id[columns]] * kept.took[columns]
    kept.total[:, columns] = total


def _one_card(columns: Ints, idle: Ints, left: Ints, fits: Bools, _cards: int) -> _Options:
    alike = idle * (WHOLE + 1) + left
    twins = (alike[np.newaxis] == alike[:, np.newaxis]).argmax(axis=1)
    rows, at = (fits & (twins == np.arange(len(twins))[:, np.newaxis])).nonzero()
    after = idle[:, at]
    after[rows, np.arange(len(at))] = left[rows, at]
    return _Options(columns, rows, at, after, twins)


def _tightest_cards(columns: Ints, idle: Ints, left: Ints, fits: Bools, cards: int) -> _Options:
    after, each = idle.copy(), np.arange(len(columns))
    if cards:
        rows = np.argsort(np.where(fits, idle, WHOLE + 1), axis=0, kind="stable")[:cards]
        np.put_along_axis(after, rows, np.take_along_axis(left, rows, axis=0), axis=0)
    return _Options(columns, np.zeros_like(each), each, after)


def _at(need: Ints, columns: Ints) -> Ints:
    return need if need.ndim == 0 or need.shape[-1] == 1 else need[..., columns]
