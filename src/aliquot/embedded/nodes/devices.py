"""How the containers of a hollow node come to their cards: through the real agent, or simulated."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from aliquot.model import Pod


@dataclass
class Inside:
    """What a container finds inside: variables and device paths."""

    environment: dict[str, str] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)


class Devices(Protocol):
    """kubelet's device manager and the container runtime, as far as a hollow node needs them."""

    @property
    def changed(self) -> asyncio.Event:
        """Set when `capacity` has become another."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def capacity(self) -> Mapping[str, int]:
        """How many ids of each resource there are."""

    async def admit(self, pod: Pod) -> None:
        """Give every container its ids. Raises AdmissionError."""

    async def start(self, pod: Pod, container: str) -> Inside:
        """Let a container start with its cards. Raises Refused, with what stands in the way."""

    def see_pods(self) -> None:
        """A pod of the node has changed."""

    def release(self, pod_uid: str) -> None:
        """The pod's containers have ended."""
