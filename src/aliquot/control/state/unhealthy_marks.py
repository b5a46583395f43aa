"""Cards that users marked unhealthy, in addition to what nodes report."""

from collections.abc import Mapping

from aliquot.dialects.unhealthy import without
from aliquot.model import NodeGpus


class Marks:
    def __init__(self) -> None:
        self._indexes: dict[str, frozenset[int]] = {}
        self._told: dict[str, NodeGpus] = {}
        """The cards of marked nodes as the nodes report them."""

    @property
    def all(self) -> Mapping[str, frozenset[int]]:
        """The marked cards of each node, by index."""
        return self._indexes

    def put(self, node: str, indexes: frozenset[int]) -> bool:
        """Set a node's marks. Returns whether they changed."""
        if self._indexes.get(node, frozenset()) == indexes:
            return False
        if indexes:
            self._indexes[node] = indexes
        else:
            del self._indexes[node]
        return True

    def on(self, told: NodeGpus) -> NodeGpus:
        """Apply the marks to a node's cards."""
        indexes = self._indexes.get(told.node)
        if not indexes:
            self._told.pop(told.node, None)
            return told
        self._told[told.node] = told
        return without(told, indexes)

    def without_marks(self, cards: NodeGpus) -> NodeGpus:
        """A node's cards as the node reports them."""
        return self._told.get(cards.node, cards)

    def lose(self, node: str) -> None:
        """Drop a deleted node. Its marks stay: their author does not follow nodes."""
        self._told.pop(node, None)
