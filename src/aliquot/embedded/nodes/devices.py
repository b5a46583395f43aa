"""The seam between a hollow node and its cards: the real agent, or a simulation."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from aliquot.model import Pod, Slice


@dataclass
class Inside:
    """What a container gets: variables and device paths, and the parts of cards that they stand for."""

    environment: dict[str, str] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    parts: tuple[Slice, ...] = ()


class Devices(Protocol):
    """The parts of kubelet's device manager and the container runtime that a hollow node needs."""

    @property
    def changed(self) -> asyncio.Event:
        """Set when `capacity` has changed."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def capacity(self) -> Mapping[str, int]:
        """The number of device ids of each resource."""

    async def admit(self, pod: Pod) -> None:
        """Allocate device ids to every container. Raises AdmissionError."""

    async def start(self, pod: Pod, container: str) -> Inside:
        """Prepare a container's cards so that it can start. Raises Refused with the reason."""

    def see_pods(self) -> None:
        """A pod of the node has changed."""

    def release(self, pod_uid: str) -> None:
        """The pod's containers have ended."""
