"""What the nodes of a block have left, and what that is worth, kept up to date as nodes change."""

import numpy as np

from aliquot.engine.arrays import Floats, Ints
from aliquot.engine.block import Block
from aliquot.engine.card_kinds import NodeKind
from aliquot.engine.forecast.filling import Filling
from aliquot.engine.forecast.scarcity import Demand
from aliquot.engine.workload import WHOLE
from aliquot.model import CORES


class Present:
    def __init__(self, block: Block, filling: Filling, demand: Demand) -> None:
        self._filling = filling
        self._demand = demand
        self._at = -1
        self._kinds: tuple[NodeKind, ...] = ()
        self._suits = demand.suits(())
        self.idle = np.zeros((block.rows, block.width), np.int64)
        """Thousandths of each card that are idle in memory and cores."""
        self.whole = np.zeros(block.width, np.int64)
        """Cards of which nothing is taken."""
        self.idle_sum = np.zeros(block.width, np.int64)
        """Of all cards of a node."""
        self.wasted = np.zeros(block.width)
        """Cards that will stay idle in the end."""
        self.rooms = np.zeros((len(demand.large), block.width), np.int64)
        """For each kind of large pods."""
        self.all_rooms = np.zeros(len(demand.large), np.int64)

    @property
    def width(self) -> int:
        return len(self.whole)

    def update(self, block: Block) -> None:
        (columns,) = (block.changed > self._at).nonzero()
        if not len(columns):
            return
        self._at = block.clock
        idle = idle_shares(block, columns, block.free_mib[:, columns], block.free_cores[:, columns])
        cpu, memory = block.host_cpu[columns], block.host_memory[columns]
        self.idle[:, columns] = idle
        self.whole[columns] = (idle == WHOLE).sum(axis=0)
        self.idle_sum[columns] = idle.sum(axis=0)
        self.wasted[columns] = self.wasted_after(block, columns, idle, cpu, memory)
        rooms = self.rooms_after(block, columns, self.whole[columns], cpu, memory)
        self.all_rooms += rooms.sum(axis=1) - self.rooms[:, columns].sum(axis=1)
        self.rooms[:, columns] = rooms

    def wasted_after(self, block: Block, columns: Ints, idle: Ints, cpu: Ints, memory: Ints) -> Floats:
        """[n]: the cards that will stay idle on these nodes if they have so much left now."""
        kinds = block.kind_id[columns]
        if len(kinds) and (kinds == kinds[0]).all():
            return self._filling.idle_after(block.kinds[kinds[0]], idle, cpu, memory)
        wasted = np.zeros(len(columns))
        for number in np.unique(kinds).tolist():
            at = kinds == number
            wasted[at] = self._filling.idle_after(block.kinds[number], idle[:, at], cpu[at], memory[at])
        return wasted

    def rooms_after(self, block: Block, columns: Ints, whole: Ints, cpu: Ints, memory: Ints) -> Ints:
        """[large, n]: the rooms of these nodes if they have so much left."""
        kinds = tuple(block.kinds)
        if kinds != self._kinds:
            self._kinds, self._suits = kinds, self._demand.suits(kinds)
        suits = self._suits[:, block.kind_id[columns]]
        return np.asarray(self._demand.rooms(whole, cpu, memory) * (suits if whole.ndim == 1 else suits[:, np.newaxis]))


def idle_shares(block: Block, columns: Ints, free_mib: Ints, free_cores: Ints) -> Ints:
    """[rows, n]: the thousandths, if so much of the cards in these columns is free."""
    shares = free_mib * WHOLE // np.maximum(block.mib[:, columns], 1)
    np.minimum(shares, free_cores * (WHOLE // CORES), out=shares)
    np.minimum(shares, WHOLE, out=shares)
    np.maximum(shares, 0, out=shares)
    return np.asarray(shares * block.sellable[:, columns])
