"""The cards of this node as they are now. They change while the agent runs: cards fail, return, appear and go."""

from aliquot.model import NodeGpus
from aliquot.signals import Signal


class NodeCards:
    def __init__(self, cards: NodeGpus) -> None:
        self.current = cards
        self.changed: Signal[NodeGpus] = Signal()
        """Emitted after `current` has changed."""

    def see(self, cards: NodeGpus) -> None:
        if cards != self.current:
            self.current = cards
            self.changed.emit(cards)
