"""Cards that somebody has marked unhealthy, beside what their nodes tell of them."""

from collections.abc import Mapping

from aliquot.dialects.unhealthy import without
from aliquot.model import NodeGpus


class Marks:
    def __init__(self) -> None:
        self._indexes: dict[str, frozenset[int]] = {}
        self._told: dict[str, NodeGpus] = {}
        """The cards of marked nodes as the nodes tell them."""

    @property
    def all(self) -> Mapping[str, frozenset[int]]:
        """The marked cards of each node, by their indexes."""
        return self._indexes

    def put(self, node: str, indexes: frozenset[int]) -> bool:
        """A node's marks as they are now. Returns whether that is news."""
        if self._indexes.get(node, frozenset()) == indexes:
            return False
        if indexes:
            self._indexes[node] = indexes
        else:
            del self._indexes[node]
        return True

    def on(self, told: NodeGpus) -> NodeGpus:
        """A node's cards, with its marks."""
        indexes = self._indexes.get(told.node)
        if not indexes:
            self._told.pop(told.node, None)
            return told
        self._told[told.node] = told
        return without(told, indexes)

    def without_marks(self, cards: NodeGpus) -> NodeGpus:
        """Cards that were marked as their node told them."""
        return self._told.get(cards.node, cards)

    def lose(self, node: str) -> None:
        """The node is gone. Its marks stay: whoever made them does not know that."""
        self._told.pop(node, None)
