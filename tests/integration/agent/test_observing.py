"""Observed nodes: the agent records which cards another vendor's plugin has given to each pod."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from aliquot.agent import rpc
from aliquot.agent.node_pods import NodePods
from aliquot.agent.observing import Observer
from aliquot.agent.podresources import PodResources
from aliquot.agent.proto import deviceplugin_pb2 as wire
from aliquot.dialects import standard_dialects
from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.embedded.kubelet_devices import DeviceManager
from aliquot.kube import PODS, Client
from aliquot.model import NodeGpus, Pod
from aliquot.model.records import OBSERVED, read_observed
from tests.factories import container_manifest, make_gpu, pod_manifest
from tests.fakes import FakeClock, ScriptedApi, answer, until
from tests.integration.agent.node import ended, runs
from tests.integration.room import Room

GPU = "nvidia.com/gpu"


class VendorPlugin:
    """Hands out cards by itself, in the order in which it lists them."""

    def __init__(self, kubelet: DeviceManager, ids: Sequence[str]) -> None:
        self._kubelet = kubelet
        self._ids = ids
        self._stopping = asyncio.Event()
        methods = {
            "ListAndWatch": rpc.streaming(self._list, wire.Empty),
            "Allocate": rpc.unary(self._allocate, wire.AllocateRequest),
        }
        self._server = rpc.server("v1beta1.DevicePlugin", methods, kubelet.folder / "vendor.sock")

    async def __aenter__(self) -> None:
        await self._server.start()
        request = wire.RegisterRequest(version="v1beta1", endpoint="vendor.sock", resource_name=GPU)
        async with rpc.channel(self._kubelet.folder / "kubelet.sock") as channel:
            await rpc.call(channel, "/v1beta1.Registration/Register", request, wire.Empty)
        await until(lambda: self._kubelet.capacity().get(GPU), "the plugin is registered")

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        await self._server.stop(grace=None)

    async def _list(self, _: wire.Empty, __: rpc.Context) -> AsyncIterator[wire.ListAndWatchResponse]:
        yield wire.ListAndWatchResponse(devices=[wire.Device(ID=own, health="Healthy") for own in self._ids])
        await self._stopping.wait()

    async def _allocate(self, _: wire.AllocateRequest, __: rpc.Context) -> wire.AllocateResponse:
        return wire.AllocateResponse(container_responses=[wire.ContainerAllocateResponse()])


class Node:
    """What the API server shows is what the test has `show`n."""

    def __init__(self, kubelet: DeviceManager, api: ScriptedApi, client: Client) -> None:
        self.kubelet = kubelet
        self.api = api
        self.clock = FakeClock()
        self.shown: dict[str, Pod] = {}
        self.pods = NodePods(lambda: list(self.shown.values()))
        held = PodResources(kubelet.pod_resources, self.clock)
        self.observer = Observer(standard_dialects(), held, self.pods, client, self.clock)

    async def started(self, name: str, cards: int = 1, **fields: Any) -> Pod:
        """A pod that kubelet has admitted and started."""
        pod = await self.admitted(name, cards, **fields)
        self.show(runs(pod))
        return pod

    async def admitted(self, name: str, cards: int = 1, **fields: Any) -> Pod:
        containers = [container_manifest(gpu_mem=None, resources={"limits": {GPU: str(cards)}})]
        manifest = pod_manifest(name, node="n1", **{"containers": containers, **fields})
        pod = msgspec.convert(self.api.registry.create(resources.PODS, "default", manifest).obj, Pod)
        self.show(pod)
        await self.kubelet.admit(pod)
        return pod

    def show(self, pod: Pod) -> None:
        self.shown[pod.metadata.uid] = pod
        self.pods.notify()

    def record(self, pod: Pod) -> Any:
        """What stands on the pod at the API server."""
        stored = self.api.registry.get(resources.PODS, "default", pod.metadata.name).obj
        text = stored["metadata"].get("annotations", {}).get(OBSERVED)
        return None if text is None else read_observed(pod.metadata.uid, text)

    def written(self, pod: Pod) -> Pod:
        """The running pod as the informer shows it after the write."""
        stored = self.api.registry.get(resources.PODS, "default", pod.metadata.name).obj
        return runs(msgspec.convert(stored, Pod))

    def patches(self) -> list[Any]:
        return [seen.body for seen in self.api.seen if seen.method == "PATCH"]


CARDS = ("GPU-b", "GPU-a", "GPU-c::0", "MIG-d")


@pytest.fixture
async def node(folder: Path, scripted: ScriptedApi, client: Client) -> AsyncIterator[Node]:
    async with DeviceManager(folder / "device-plugins") as kubelet, VendorPlugin(kubelet, CARDS):
        yield Node(kubelet, scripted, client)


async def test_a_pod_gets_the_cards_that_kubelet_gave_it(node: Node) -> None:
    first, second = await node.started("first"), await node.started("second", 2)
    await node.observer.look()
    assert node.record(first) == {"main": ["GPU-b"]}
    assert node.record(second) == {"main": ["GPU-a", "GPU-c"]}, "a replica stands for its card"


async def test_a_record_is_written_once_and_for_this_pod_only(node: Node) -> None:
    pod = await node.started("first")
    await node.observer.look()
    node.show(node.written(pod))
    await node.observer.look()
    (patch,) = node.patches()
    assert patch["metadata"]["uid"] == pod.metadata.uid


async def test_a_record_that_somebody_rewrote_is_corrected(node: Node, client: Client) -> None:
    pod = await node.started("first")
    await node.observer.look()
    forged = {"metadata": {"annotations": {OBSERVED: "{}"}}}
    await client.patch(PODS, "first", forged, namespace="default")
    node.show(node.written(pod))
    await node.observer.look()
    assert node.record(pod) == {"main": ["GPU-b"]}


@pytest.mark.parametrize("state", ["not started", "ended", "asks for no card"])
async def test_other_pods_get_no_record(node: Node, state: str) -> None:
    if state == "asks for no card":
        pod = await node.started("first", containers=[container_manifest(gpu_mem=3)])
    else:
        pod = await node.admitted("first")
        node.show(ended(pod) if state == "ended" else pod)
    await node.observer.look()
    assert node.record(pod) is None


async def test_a_namesake_that_is_still_ending_is_not_mistaken_for_its_successor(node: Node) -> None:
    """It was deleted by force. kubelet lists both, without UIDs."""
    old = await node.admitted("web-0")
    del node.shown[old.metadata.uid]
    node.api.registry.delete(resources.PODS, "default", "web-0", DeleteRequest(grace_seconds=0))
    new = await node.started("web-0")
    await node.observer.look()
    assert node.record(new) is None
    node.kubelet.release(old.metadata.uid)
    await node.observer.look()
    assert node.record(new) == {"main": ["GPU-a"]}


async def test_the_others_are_recorded_although_one_write_fails(node: Node) -> None:
    first, second = await node.started("first"), await node.started("second")
    node.api.script("PATCH", "/pods/first$", answer(500))
    running = asyncio.create_task(node.observer.run())
    with capture_logs() as told:
        await until(lambda: node.record(second), "the second pod is recorded")
        await until(lambda: node.record(first), "the first pod is recorded, too", passing=node.clock)
    running.cancel()
    assert [line["event"] for line in told if line["log_level"] == "warning"] == [
        "cannot record which cards pods have, retrying"
    ]


async def test_a_pod_that_is_gone_is_left_alone(node: Node) -> None:
    await node.started("gone")
    other = await node.started("other")
    node.api.registry.delete(resources.PODS, "default", "gone", DeleteRequest(grace_seconds=0))
    await node.observer.look()
    assert node.record(other) == {"main": ["GPU-a"]}


async def test_a_pod_that_starts_later_is_recorded_at_once(node: Node) -> None:
    running = asyncio.create_task(node.observer.run())
    await until(lambda: node.clock.sleeping, "nothing to do")
    pod = await node.started("first")
    await until(lambda: node.record(pod), "the pod is recorded")
    running.cancel()


async def test_a_kubelet_that_does_not_answer_is_asked_again(
    folder: Path, scripted: ScriptedApi, client: Client
) -> None:
    clock, pods = FakeClock(), NodePods(lambda: [runs(pod)])
    pod = msgspec.convert(
        pod_manifest(containers=[container_manifest(gpu_mem=None, resources={"limits": {GPU: "1"}})]) | {"status": {}},
        Pod,
    )
    silent = PodResources(folder / "kubelet.sock", clock)
    observer = Observer(standard_dialects(), silent, pods, client, clock)
    with capture_logs() as told:
        running = asyncio.create_task(observer.run())
        await until(lambda: clock.sleeping, "it pauses")
        await clock.move(2.0)
        await until(lambda: clock.sleeping, "it pauses again")
    running.cancel()
    assert len(told) == 1, "the same trouble is told once"
    assert scripted.seen == []


async def test_the_server_learns_from_the_record_which_cards_are_taken(folder: Path, room: Room) -> None:
    cards = NodeGpus("n1", (make_gpu(0), make_gpu(1)), 1024, observed=True)
    await room.add_node(cards, capacity={GPU: "2"})
    pod = await room.add_pod(containers=[container_manifest(gpu_mem=None, resources={"limits": {GPU: "1"}})])
    await room.commit(pod, "n1")
    await room.in_sync()
    assert room.used() == {0: 15}, "one of the two, until kubelet has told which"
    async with DeviceManager(folder / "device-plugins") as kubelet, VendorPlugin(kubelet, ["GPU-n1-1", "GPU-n1-0"]):
        await kubelet.admit(pod)
        await room.report(pod, phase="Running", containerStatuses=[{"name": "main", "state": {"running": {}}}])
        pods = NodePods(lambda: list(room.plane.pods_on("n1")))
        held = PodResources(kubelet.pod_resources, room.clock)
        await Observer(standard_dialects(), held, pods, room.client, room.clock).look()
    await room.in_sync()
    assert room.used() == {1: 15}
