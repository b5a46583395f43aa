"""The Fleet: every card of every node, in arrays whose size follows the number of cards, not the largest node."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import TypeAlias

import numpy as np

from aliquot.engine.arrays import Bools, Ints
from aliquot.engine.block import Block, PlacedEntry
from aliquot.engine.lookup import NameTable
from aliquot.engine.state import NodeState
from aliquot.model import UNKNOWN_HOST, Charge, Host, NodeGpus

_FEWEST_ROWS = 8


_BlockKind: TypeAlias = tuple[bool, int]
"""What the nodes of a block share: whether another agent hands out their cards, and the number of rows."""


class Fleet:
    """Nodes with a similar number of cards share a Block: up to 8, up to 16, up to 32 and so on. Nodes whose cards
    another agent hands out have blocks of their own, because a request may differ there.

    A node's column counts through all blocks. It is valid until `table` changes.
    """

    def __init__(self) -> None:
        self._by_kind: dict[_BlockKind, Block] = {}
        self._block_of: dict[str, Block] = {}
        self._name_order: Ints | None = None
        self._table: NameTable | None = None
        self.blocks: tuple[Block, ...] = ()
        """The blocks of our agent first, then by number of rows. There is always one. If there are several, each has
        nodes."""
        self.width = 0
        """Columns in use or vacant."""
        self._arrange()

    # -- writing

    def put(self, cards: NodeGpus, used: Mapping[str, Charge], placed: Iterable[PlacedEntry] = ()) -> None:
        """Sets a node's current cards, what is used of them, and the ledger entries on it."""
        kind, before = _kind_of(cards), self._block_of.get(cards.node)
        if before is not None and before is self._by_kind.get(kind):
            before.put(cards, used, placed)
            return
        loads: Mapping[str, tuple[float, float]] = {}
        measured = frozenset[str]()
        left = whole = UNKNOWN_HOST
        if before is not None:
            loads, measured = before.loads(cards.node), before.measured(cards.node)
            left, whole = before.host(cards.node), before.whole_host(cards.node)
            before.remove(cards.node)
        block = self._block_of[cards.node] = self._block(kind)
        block.put(cards, used, placed)
        if loads:
            block.set_load(cards.node, loads, measured)
        block.set_host(cards.node, left, whole)
        self._arrange()

    def remove(self, node: str) -> None:
        block = self._block_of.pop(node, None)
        if block is not None:
            block.remove(node)
            self._arrange()

    def set_load(
        self, node: str, load: Mapping[str, tuple[float, float]], measured: frozenset[str] = frozenset()
    ) -> None:
        """Sets how busy each card was and when that was measured, by uuid. Cards that are left out have no sample.
        `measured` are the UIDs of the pods that were seen at work."""
        if (block := self._block_of.get(node)) is not None:
            block.set_load(node, load, measured)

    def set_host(self, node: str, left: Host, whole: Host | None = None) -> None:
        """Sets what a node has left of CPU and memory, and what it would have without any pod (as much, if this is left
        out). Until then both count as boundless."""
        if (block := self._block_of.get(node)) is not None:
            block.set_host(node, left, whole)

    # -- reading

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(block.nbytes for block in self.blocks)

    @property
    def names(self) -> list[str]:
        """Names by column; a vacant column has the name ""."""
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
        before = takewhile(lambda other: other is not block, self.blocks)
        return sum(other.width for other in before)

    def name_at(self, column: int) -> str:
        for block in self.blocks:
            if column < block.width:
                return block.names[column]
            column -= block.width
        raise IndexError("there is no such column")

    @property
    def table(self) -> NameTable:
        """Finds the columns of many nodes. A node that comes or goes makes a new table."""
        if self._table is None:
            self._table = NameTable(self.names)
        return self._table

    @property
    def name_order(self) -> Ints:
        """[width]: the rank of each column's name among all names."""
        if self._name_order is None:
            names = self.names
            order = np.empty(len(names), np.int64)
            order[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
            self._name_order = order
        return self._name_order

    def state(self, node: str) -> NodeState | None:
        block = self._block_of.get(node)
        return None if block is None else block.state(node)

    def host(self, node: str) -> Host:
        """What a node has left of CPU and memory."""
        block = self._block_of.get(node)
        return block.host(node) if block is not None else UNKNOWN_HOST

    def shows(self, cards: NodeGpus, used: Mapping[str, Charge]) -> bool:
        """Whether the Fleet has the node with these cards and this usage."""
        block = self._block_of.get(cards.node)
        return block is not None and block.shows(cards, used)

    def card_types(self, columns: Ints) -> Iterator[tuple[Bools, NodeGpus]]:
        """Groups of nodes whose cards quotas cannot tell apart: their columns among these, and the cards of one of
        them."""
        for block in self.blocks:
            first = self.first(block)
            (places,) = ((columns >= first) & (columns < first + block.width)).nonzero()
            if len(places):
                within = columns[places] - first
                types = np.where(block.has, block.type_id, -1)[:, within]
                _, firsts, group = np.unique(types, axis=1, return_index=True, return_inverse=True)
                for number, column in enumerate(within[firsts].tolist()):
                    alike = np.zeros(len(columns), np.bool_)
                    alike[places[group.ravel() == number]] = True
                    yield alike, block.state_at(column).cards

    def block_of(self, node: str) -> Block | None:
        return self._block_of.get(node)

    # -- inside

    def _block(self, kind: _BlockKind) -> Block:
        if kind not in self._by_kind:
            other_agent, rows = kind
            self._by_kind[kind] = Block(rows, self._by_kind.values(), other_agent=other_agent)
        return self._by_kind[kind]

    def _arrange(self) -> None:
        """Rearranges the blocks after a node has come, gone or moved to another block."""
        for kind in [kind for kind, block in self._by_kind.items() if not block.columns]:
            del self._by_kind[kind]
        if not self._by_kind:
            self._block((False, _FEWEST_ROWS))
        self.blocks = tuple(self._by_kind[kind] for kind in sorted(self._by_kind))
        self.width = sum(block.width for block in self.blocks)
        self._name_order = self._table = None


def _kind_of(cards: NodeGpus) -> _BlockKind:
    """Rows are powers of two: except on the smallest nodes, fewer than half of them are empty."""
    return cards.are_made_up, max(_FEWEST_ROWS, 1 << max(0, len(cards.gpus) - 1).bit_length())
