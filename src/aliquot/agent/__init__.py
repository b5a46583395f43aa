"""The node agent offers cards to kubelet and hands over exactly the placed ones."""

from aliquot.agent.agent import run
from aliquot.agent.node_dialects import served_dialects
from aliquot.agent.owned_node import node_cards

__all__ = ["node_cards", "run", "served_dialects"]
