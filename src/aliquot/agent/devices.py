"""The vendor seam: what the agent asks of the machine's cards. Each vendor has a package that implements it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from aliquot.model import Gpu


@dataclass(frozen=True)
class DeviceNode:
    """A device node for a container: its path there, and its path on this machine."""

    path: str
    host_path: str


@dataclass(frozen=True)
class Mount:
    """A file or folder of this machine that a container sees."""

    container_path: str
    host_path: str
    options: tuple[str, ...] = ("ro", "nosuid", "nodev", "rbind", "rprivate")


@dataclass(frozen=True)
class Hook:
    """A program of this machine that the container runtime runs at a stage of a container's life, such as
    `createContainer`."""

    stage: str
    path: str
    arguments: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


@dataclass(frozen=True)
class ContainerEdits:
    """What the container runtime adds to a container."""

    environment: Mapping[str, str] = field(default_factory=dict)
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()


@dataclass(frozen=True)
class Machine:
    """What the driver shows now. `faults` says why a card is unhealthy, by UUID."""

    gpus: tuple[Gpu, ...]
    driver: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)


class DeviceSource(Protocol):
    """The cards of this machine, as their vendor's driver knows them."""

    def read(self) -> Machine:
        """Every card by index, with its health. May block. Raises NoDriver with what to check if there is no card to
        serve."""

    def edits(self, gpus: Sequence[Gpu]) -> ContainerEdits:
        """What a container needs to use exactly these cards. Raises Refused if something of a card is missing."""

    def visible_cards(self, environment: Mapping[str, str]) -> frozenset[str]:
        """The UUIDs of the cards that a container's environment names."""
