"""Numbers that policies work out for every node, kept until the node changes: between two decisions few nodes do."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from aliquot.engine.arrays import Ints
from aliquot.engine.block import Block

_MOST = 128
"""Kinds of requests for which numbers are kept; of more, those that were not asked for longest are forgotten."""


@dataclass
class _Numbers:
    values: Ints
    at: int = -1


class Kept:
    def __init__(self) -> None:
        self._blocks: WeakKeyDictionary[Block, OrderedDict[Hashable, _Numbers]] = WeakKeyDictionary()

    def numbers(self, block: Block, key: Hashable, work_out: Callable[[Ints], Ints]) -> Ints:
        """[..., width]: what `work_out` returns for some columns, [..., n], for all of them. `key` is everything else
        that it depends on. The next call changes the result."""
        entries = self._blocks.setdefault(block, OrderedDict())
        own = entries.pop(key, None)
        if own is None or own.values.shape[-1] != block.width:
            own = _Numbers(work_out(np.arange(block.width)))
        elif len(columns := np.flatnonzero(block.changed > own.at)):
            own.values[..., columns] = work_out(columns)
        own.at = block.clock
        entries[key] = own
        if len(entries) > _MOST:
            entries.popitem(last=False)
        return own.values
