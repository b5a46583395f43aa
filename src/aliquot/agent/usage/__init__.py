"""Who uses the cards of this node: from the driver's processes to containers and pods."""

from aliquot.agent.usage.collector import Collected, Collector, ContainerUse, Part
from aliquot.agent.usage.owners import FindsOwners, HostProcesses, Owner

__all__ = ["Collected", "Collector", "ContainerUse", "FindsOwners", "HostProcesses", "Owner", "Part"]
