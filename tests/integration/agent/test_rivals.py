"""Another device plugin for our resource, on a socket whose name nobody knows."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from aliquot.agent import rpc
from aliquot.agent.kubelet_records import CHECKPOINT
from aliquot.agent.proto import deviceplugin_pb2 as wire
from aliquot.agent.rivals import Rivals
from aliquot.embedded.kubelet_devices import DeviceManager
from aliquot.model import NodeGpus
from aliquot.model.records import OBSERVED
from tests.factories import GPU_MEM, make_cards
from tests.fakes import until
from tests.integration.agent.node import AgentNode

REMEDY = (
    "remove that plugin from the node and delete the pod of this agent, so that it registers again; or label the node "
    f"{OBSERVED}=true if that plugin is to go on"
)
OFFERS = f"another device plugin offers {GPU_MEM}, too, with ids such as nvidia0: {REMEDY}"
SERVES = f"another device plugin has served {GPU_MEM} to a new container main: {REMEDY}"
OURS = [f"GPU-n1-{card}-_-{unit}" for card in range(2) for unit in range(15)]


@asynccontextmanager
async def rival(kubelet: DeviceManager, ids: Sequence[str]) -> AsyncIterator[None]:
    """A plugin that has registered for our resource, so that kubelet asks it from now on."""
    ending = asyncio.Event()

    async def listed(_: wire.Empty, __: "rpc.Context") -> AsyncIterator[wire.ListAndWatchResponse]:
        yield wire.ListAndWatchResponse(devices=[wire.Device(ID=each, health="Healthy") for each in ids])
        await ending.wait()

    async def allocate(_: wire.AllocateRequest, __: "rpc.Context") -> wire.AllocateResponse:
        answer = wire.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": "0"})
        return wire.AllocateResponse(container_responses=[answer])

    methods = {
        "ListAndWatch": rpc.streaming(listed, wire.Empty),
        "Allocate": rpc.unary(allocate, wire.AllocateRequest),
    }
    server = rpc.server("v1beta1.DevicePlugin", methods, kubelet.folder / "1763459952.sock")
    await server.start()
    request = wire.RegisterRequest(version="v1beta1", endpoint="1763459952.sock", resource_name=GPU_MEM)
    async with rpc.channel(kubelet.folder / "kubelet.sock") as channel:
        await rpc.call(channel, "/v1beta1.Registration/Register", request, wire.Empty)
    await until(lambda: kubelet.capacity()[GPU_MEM] == len(ids), "kubelet follows the rival")
    write_checkpoint(kubelet)
    yield
    ending.set()
    await server.stop(None)


def write_checkpoint(kubelet: DeviceManager) -> None:
    """kubelet does so with every list of ids."""
    kubelet.release("nobody")


async def begun(node: AgentNode) -> Rivals:
    rivals = Rivals(node.holders)
    write_checkpoint(node.kubelet)
    assert await rivals.look(()) == []
    return rivals


async def test_ids_that_are_not_ours_tell_of_a_rival_once_they_last(node: AgentNode) -> None:
    rivals = await begun(node)
    assert await rivals.look(node.serving) == []
    async with rival(node.kubelet, ["nvidia0", "nvidia1"]):
        assert await rivals.look(node.serving) == [], "it may be our own last list"
        assert await rivals.look(node.serving) == [OFFERS]
        assert await rivals.look(node.serving) == [], "once is enough"
        assert [plugin.rival for plugin in node.serving] == [OFFERS, ""]
    await node.restart_agent()
    write_checkpoint(node.kubelet)
    rivals = await begun(node)
    for _ in range(2):
        assert await rivals.look(node.serving) == []


async def test_a_rival_with_our_ids_is_noticed_by_what_it_has_served(node: AgentNode) -> None:
    await node.admitted("old", 3, card=0)
    rivals = await begun(node)
    async with rival(node.kubelet, OURS):
        for _ in range(2):
            assert await rivals.look(node.serving) == []
        await node.admitted("new", 3, card=0)
        assert await rivals.look(node.serving) == [SERVES]


async def test_what_another_plugin_served_before_a_node_was_taken_over_is_no_rival_s(node: AgentNode) -> None:
    async with rival(node.kubelet, OURS):
        await node.admitted("old", 3, card=0)
    await node.restart_agent()
    rivals = await begun(node)
    for _ in range(2):
        assert await rivals.look(node.serving) == []


async def test_our_own_list_may_change(node: AgentNode) -> None:
    rivals = await begun(node)

    async def change(cards: NodeGpus, units: int) -> None:
        node.node_cards.see(cards)
        assert await rivals.look(node.serving) == []
        await until(lambda: node.kubelet.capacity()[GPU_MEM] == units, "kubelet is told")
        write_checkpoint(node.kubelet)
        assert await rivals.look(node.serving) == []

    await change(make_cards(mib=[15360]), 15)
    await change(make_cards(), 30)
    await change(make_cards(unhealthy=[1]), 15)


@pytest.mark.parametrize("text", ["{", '{"Data":{"RegisteredDevices":{"aliyun.com/gpu-mem":7}}}'])
async def test_a_checkpoint_that_cannot_be_read_tells_nothing(node: AgentNode, text: str) -> None:
    rivals = await begun(node)
    (node.kubelet.folder / CHECKPOINT).write_text(text)
    assert await rivals.look(node.serving) == []
