"""Pods that go all the way: a scheduler asks our native endpoint, and the agent's hand-over starts them on a hollow
node."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from aliquot.embedded.gpus import SimulatedGpus
from aliquot.embedded.nodes import HollowNodes
from aliquot.endpoints import native
from aliquot.model import Gpu, NodeGpus, Pod
from tests.factories import container_manifest
from tests.fakes import until
from tests.integration.endpoints.endpoint import Endpoint, bind_args
from tests.integration.endpoints.wire import opened
from tests.integration.room import Room


class Driver(SimulatedGpus):
    """Cards as a test wants them."""

    def __init__(self, gpus: tuple[Gpu, ...]) -> None:
        super().__init__("", ())
        self._gpus = gpus


class Running:
    def __init__(self, room: Room, endpoint: Endpoint, nodes: HollowNodes) -> None:
        self._room = room
        self._endpoint = endpoint
        self._nodes = nodes

    async def starts(self, name: str, limits: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> Pod:
        """A pod that a node was found for and that runs there."""
        pod = await self.make(name, limits, annotations)
        answer = await self.filter(pod)
        assert (answer["Error"], bool(answer["NodeNames"])) == ("", True), answer
        reply = await self._endpoint.post("/aliquot/bind", bind_args(pod, answer["NodeNames"][0]))
        assert reply.json["Error"] == ""
        await until(lambda: self.shown(pod).status.phase == "Running", f"{name} runs")
        await self._room.in_sync()
        return self.shown(pod)

    async def refusal(
        self, name: str, limits: Mapping[str, str], annotations: Mapping[str, str] | None = None
    ) -> set[str]:
        """Why no node takes a pod."""
        answer = await self.filter(await self.make(name, limits, annotations))
        assert not answer["NodeNames"]
        return set(answer["FailedNodes"].values())

    async def make(self, name: str, limits: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> Pod:
        container = container_manifest(gpu_mem=None, resources={"limits": dict(limits)})
        return await self._room.add_pod(name, containers=[container], metadata={"annotations": dict(annotations or {})})

    async def filter(self, pod: Pod) -> Any:
        call = {"Pod": msgspec.to_builtins(self.shown(pod)), "NodeNames": list(self._nodes)}
        return (await self._endpoint.post("/aliquot/filter", call)).json

    def shown(self, pod: Pod) -> Pod:
        return msgspec.convert(self._room.api_pod(pod), Pod)

    def sees(self, pod: Pod) -> list[str]:
        """The cards that its container sees."""
        inside = self._nodes[pod.spec.node_name].kubelet.inside[pod.metadata.uid, "main"]
        return inside.environment["NVIDIA_VISIBLE_DEVICES"].split(",")


@asynccontextmanager
async def running(room: Room, dialect: str, *machines: NodeGpus) -> AsyncIterator[Running]:
    """Hollow nodes that serve a dialect, on the API server of a room with its control plane."""
    async with HollowNodes(room.client, clock=room.clock) as nodes:
        for cards in machines:
            await nodes.add_simulated(cards.node, Driver(cards.gpus), [dialect])
        living = asyncio.create_task(nodes.run())
        try:
            shown = room.plane.cluster.cards
            await until(lambda: all(shown(cards.node).by_uuid.keys() == cards.by_uuid.keys() for cards in machines))
            async with opened(room, native.routes(room.plane)) as endpoint:
                yield Running(room, endpoint, nodes)
        finally:
            living.cancel()
            await asyncio.gather(living, return_exceptions=True)
