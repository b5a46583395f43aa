"""What nodes have left now: shares of cards, CPU and memory."""

from dataclasses import dataclass

import numpy as np

from aliquot.engine.arrays import Ints
from aliquot.engine.block import Block
from aliquot.engine.workload import WHOLE
from aliquot.model import CORES


@dataclass(frozen=True)
class Now:
    """Of n columns."""

    idle: Ints
    """[rows, n]: thousandths of each card that are idle in memory and cores."""
    cpu: Ints
    memory: Ints

    @classmethod
    def of(cls, block: Block, columns: Ints) -> "Now":
        idle = idle_shares(block, columns, block.free_mib[:, columns], block.free_cores[:, columns])
        return cls(idle, block.host_cpu[columns], block.host_memory[columns])

    @property
    def whole(self) -> Ints:
        """[n]: cards of which nothing is taken."""
        return np.asarray((self.idle == WHOLE).sum(axis=0))


def idle_shares(block: Block, columns: Ints, free_mib: Ints, free_cores: Ints) -> Ints:
    """[rows, n]: the thousandths, if so much of the cards in these columns is free."""
    shares = np.minimum(free_mib * WHOLE // np.maximum(block.mib[:, columns], 1), free_cores * (WHOLE // CORES))
    return np.asarray(shares.clip(0, WHOLE) * block.sellable[:, columns])
