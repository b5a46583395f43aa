"""The node agent offers cards to kubelet and hands over exactly the placed ones."""

from aliquot.agent.agent import node_cards, run
from aliquot.agent.node_dialects import served_dialects

__all__ = ["node_cards", "run", "served_dialects"]
