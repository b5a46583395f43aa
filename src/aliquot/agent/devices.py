"""The vendor seam: what the agent asks of the machine's cards. Each vendor has a package that implements it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from aliquot.model import Gpu


@dataclass(frozen=True)
class DeviceNode:
    """A device node for a container: its path there, and its path on this machine."""

    path: str
    host_path: str


@dataclass(frozen=True)
class ContainerEdits:
    """What the container runtime adds to a container."""

    environment: Mapping[str, str]
    device_nodes: tuple[DeviceNode, ...] = ()


class DeviceSource(Protocol):
    """The cards of this machine, as their vendor's driver knows them."""

    def cards(self) -> tuple[Gpu, ...]:
        """Every card by index, with its health. May block. Raises BadConfig if the driver does not answer."""

    def device_nodes(self, minors: Iterable[int]) -> tuple[DeviceNode, ...]:
        """The device nodes that a container needs to use these cards. Raises Refused if a card's node is missing."""

    def visible_cards(self, environment: Mapping[str, str]) -> frozenset[str]:
        """The UUIDs of the cards that a container's environment names."""
