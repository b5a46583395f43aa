"""The node agent: offers cards to kubelet and hands over exactly the placed ones."""

from aliquot.agent.agent import Settings, node_cards, run, served_dialects

__all__ = ["Settings", "node_cards", "run", "served_dialects"]
