"""The node agent: offers cards to kubelet and hands over exactly the placed ones."""

from aliquot.agent.agent import Settings, run

__all__ = ["Settings", "run"]
