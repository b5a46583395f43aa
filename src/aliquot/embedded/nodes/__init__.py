"""Hollow GPU nodes: with the real agent or fully simulated. Their pods run by script."""

from aliquot.embedded.nodes.agent_devices import AgentDevices
from aliquot.embedded.nodes.hollow import HollowNode, HollowNodes
from aliquot.embedded.nodes.scripts import SCRIPT

__all__ = ["AgentDevices", "HollowNode", "HollowNodes", "SCRIPT"]
