"""The Fleet: every card of every node as arrays, so that one request is judged on all of them at once.

Arrays are GPU-major (row = a node's n-th card by index, column = node): one request touches few, long rows.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from aliquot.model import CORES, Charge, Gpu, NodeGpus

_FIRST_NODES = 64
_FIRST_CARDS = 8


class Fleet:
    def __init__(self) -> None:
        self._columns: dict[str, int] = {}
        self._vacant: list[int] = []
        self._nodes: list[NodeGpus | None] = []
        self.free_mib: NDArray[np.int64] = np.zeros((_FIRST_CARDS, _FIRST_NODES), np.int64)
        self.free_cores: NDArray[np.int64] = np.zeros((_FIRST_CARDS, _FIRST_NODES), np.int64)
        self.sellable: NDArray[np.bool_] = np.zeros((_FIRST_CARDS, _FIRST_NODES), np.bool_)
        self.unit_mib: NDArray[np.int64] = np.ones(_FIRST_NODES, np.int64)

    def put(self, cards: NodeGpus, used: Mapping[str, Charge]) -> None:
        """A node as it is now: its cards less what is used of them."""
        column = self._column(cards.node)
        self._make_room(len(cards.gpus), column + 1)
        self._nodes[column] = cards
        self.unit_mib[column] = cards.unit_mib
        self.sellable[:, column] = False
        for row, gpu in enumerate(cards.gpus):
            charge = used.get(gpu.uuid, Charge())
            self.sellable[row, column] = gpu.healthy
            self.free_mib[row, column] = max(0, gpu.mib - charge.mib)
            self.free_cores[row, column] = max(0, CORES - charge.cores)

    def remove(self, node: str) -> None:
        column = self._columns.pop(node, None)
        if column is not None:
            self._nodes[column] = None
            self.sellable[:, column] = False
            self._vacant.append(column)

    def column(self, node: str) -> int | None:
        return self._columns.get(node)

    def has_cards(self, column: int) -> bool:
        cards = self._nodes[column]
        return cards is not None and bool(cards.gpus)

    def gpu(self, column: int, row: int) -> Gpu:
        cards = self._nodes[column]
        assert cards is not None, "a removed node is never judged to fit"
        return cards.gpus[row]

    @property
    def width(self) -> int:
        """Columns in use; those behind hold nothing."""
        return len(self._nodes)

    def _column(self, node: str) -> int:
        if node not in self._columns:
            if self._vacant:
                self._columns[node] = self._vacant.pop()
            else:
                self._columns[node] = len(self._nodes)
                self._nodes.append(None)
        return self._columns[node]

    def _make_room(self, cards: int, nodes: int) -> None:
        have_cards, have_nodes = self.sellable.shape
        more_cards = max(0, cards - have_cards)
        more_nodes = have_nodes if nodes > have_nodes else 0
        if not more_cards and not more_nodes:
            return
        grow = ((0, more_cards), (0, more_nodes))
        self.free_mib = np.pad(self.free_mib, grow)
        self.free_cores = np.pad(self.free_cores, grow)
        self.sellable = np.pad(self.sellable, grow)
        self.unit_mib = np.pad(self.unit_mib, (0, more_nodes), constant_values=1)
