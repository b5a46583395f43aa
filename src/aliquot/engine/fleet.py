"""The Fleet: every card of every node, in arrays whose memory follows the cards there are, not the largest node."""

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from aliquot.engine.arrays import Ints
from aliquot.engine.block import Block, Placed
from aliquot.engine.lookup import NameTable
from aliquot.engine.state import NodeState
from aliquot.model import Charge, NodeGpus

_FEWEST_ROWS = 8


class Fleet:
    """Nodes with about as many cards stand together in one Block: up to 8, up to 16, up to 32 and so on.

    A node's column counts through all blocks, those with the fewest rows first, and holds until `table` is another one.
    """

    def __init__(self) -> None:
        self._by_rows: dict[int, Block] = {}
        self._block_of: dict[str, Block] = {}
        self._name_order: Ints | None = None
        self._table: NameTable | None = None
        self.blocks: tuple[Block, ...] = ()
        """By ascending number of rows; there is always one, and if there are several, all hold nodes."""
        self._arrange()

    # -- writing

    def put(self, cards: NodeGpus, used: Mapping[str, Charge], placed: Iterable[Placed] = ()) -> None:
        """A node as it is now: its cards, what is used of them, and who was placed when."""
        rows, before = _rows_for(len(cards.gpus)), self._block_of.get(cards.node)
        if before is not None and before.rows == rows:
            before.put(cards, used, placed)
            return
        loads: Mapping[str, tuple[float, float]] = {}
        if before is not None:
            loads = before.loads(cards.node)
            before.remove(cards.node)
        block = self._block_of[cards.node] = self._block(rows)
        block.put(cards, used, placed)
        if loads:
            block.set_load(cards.node, loads)
        self._arrange()

    def remove(self, node: str) -> None:
        block = self._block_of.pop(node, None)
        if block is not None:
            block.remove(node)
            self._arrange()

    def set_load(self, node: str, load: Mapping[str, tuple[float, float]]) -> None:
        """How busy each card was and when that was measured, by uuid; cards that are left out have no sample."""
        if (block := self._block_of.get(node)) is not None:
            block.set_load(node, load)

    # -- reading

    @property
    def width(self) -> int:
        """Columns in use or vacant."""
        return sum(block.width for block in self.blocks)

    @property
    def nbytes(self) -> int:
        """Of the arrays."""
        return sum(block.nbytes for block in self.blocks)

    @property
    def names(self) -> list[str]:
        """By column; a vacant one has "" for a name."""
        return [name for block in self.blocks for name in block.names]

    @property
    def nodes(self) -> Collection[str]:
        return self._block_of.keys()

    def column(self, node: str) -> int | None:
        block = self._block_of.get(node)
        if block is None:
            return None
        first, within = self.first(block), block.column(node)
        return None if within is None else first + within

    def first(self, block: Block) -> int:
        """The column of a block's first node."""
        return sum(other.width for other in self.blocks if other.rows < block.rows)

    def name_at(self, column: int) -> str:
        for block in self.blocks:
            if column < block.width:
                return block.names[column]
            column -= block.width
        raise IndexError("there is no such column")

    @property
    def table(self) -> NameTable:
        """Finds the columns of many nodes, until one comes or goes; then there is another."""
        if self._table is None:
            self._table = NameTable(self.names)
        return self._table

    @property
    def name_order(self) -> Ints:
        """[width]: the place of each column's name among all names."""
        if self._name_order is None:
            names = self.names
            order = np.empty(len(names), np.int64)
            order[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
            self._name_order = order
        return self._name_order

    def state(self, node: str) -> NodeState | None:
        block = self._block_of.get(node)
        return None if block is None else block.state(node)

    def shows(self, cards: NodeGpus, used: Mapping[str, Charge]) -> bool:
        """Whether a node stands here with these cards, and with so much of them free."""
        block = self._block_of.get(cards.node)
        return block is not None and block.shows(cards, used)

    def block_of(self, node: str) -> Block | None:
        return self._block_of.get(node)

    # -- inside

    def _block(self, rows: int) -> Block:
        if rows not in self._by_rows:
            self._by_rows[rows] = Block(rows, self._by_rows.values())
        return self._by_rows[rows]

    def _arrange(self) -> None:
        """After a node has come or gone, or has moved to another block."""
        for rows in [rows for rows, block in self._by_rows.items() if not block.columns]:
            del self._by_rows[rows]
        if not self._by_rows:
            self._block(_FEWEST_ROWS)
        self.blocks = tuple(self._by_rows[rows] for rows in sorted(self._by_rows))
        self._name_order = self._table = None


def _rows_for(cards: int) -> int:
    """Powers of two: less than half of the rows are empty, but for the smallest nodes."""
    return max(_FEWEST_ROWS, 1 << max(0, cards - 1).bit_length())
