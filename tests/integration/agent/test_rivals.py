"""Another device plugin for our cards: for our resource on a socket whose name nobody knows, or for another one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from aliquot.agent import rpc
from aliquot.agent.kubelet_records import CHECKPOINT
from aliquot.agent.proto import deviceplugin_pb2 as wire
from aliquot.agent.rivals import Rivals
from aliquot.dialects import standard_dialects
from aliquot.embedded.kubelet_devices import DeviceManager
from aliquot.model import NodeGpus
from aliquot.model.records import OBSERVED
from tests.factories import GPU_COUNT, GPU_MEM, make_cards
from tests.fakes import until
from tests.integration.agent.node import AgentNode

REMEDY = (
    "remove that plugin from the node and delete the pod of this agent, so that it registers again; or label the node "
    f"{OBSERVED}=true if that plugin is to go on"
)
OFFERS = f"another device plugin offers {GPU_MEM}, too, with ids such as nvidia0: {REMEDY}"
NVIDIA = "nvidia.com/gpu"
SELLS = (
    f"another device plugin offers {NVIDIA} with ids such as GPU-n1-0, and so hands out cards of this node that "
    f"Aliquot sells, too: turn that plugin off on this node, or label the node {OBSERVED}=true if it is to go on"
)
SERVES = f"another device plugin has served {GPU_MEM} to a new container main: {REMEDY}"
OURS = [f"GPU-n1-{card}-_-{unit}" for card in range(2) for unit in range(15)]


@asynccontextmanager
async def rival(kubelet: DeviceManager, ids: Sequence[str], resource: str = GPU_MEM) -> AsyncIterator[None]:
    """A plugin that has registered for a resource, ours or another, so that kubelet asks it from now on."""
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
    request = wire.RegisterRequest(version="v1beta1", endpoint="1763459952.sock", resource_name=resource)
    async with rpc.channel(kubelet.folder / "kubelet.sock") as channel:
        await rpc.call(channel, "/v1beta1.Registration/Register", request, wire.Empty)
    await until(lambda: kubelet.capacity().get(resource) == len(ids), "kubelet follows the rival")
    write_checkpoint(kubelet)
    yield
    ending.set()
    await server.stop(None)


def write_checkpoint(kubelet: DeviceManager) -> None:
    """kubelet does so with every list of ids."""
    kubelet.release("nobody")


async def begun(node: AgentNode) -> Rivals:
    rivals = Rivals(node.holders, standard_dialects())
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


async def test_a_plugin_for_a_resource_that_the_node_does_not_serve_sells_its_cards_again(node: AgentNode) -> None:
    """As NVIDIA's plugin on a node for gpushare: nothing of ours has its socket or its ids."""
    rivals = await begun(node)
    async with rival(node.kubelet, ["GPU-n1-0", "GPU-n1-1"], NVIDIA):
        assert await rivals.look(()) == []
        assert await rivals.look(node.serving) == [], "kubelet may not have written yet that it is gone"
        assert await rivals.look(node.serving) == [SELLS], "once for all of our plugins"
        assert await rivals.look(node.serving) == []
        assert [plugin.rival for plugin in node.serving] == [SELLS, SELLS]
    await until(lambda: not node.kubelet.capacity().get(NVIDIA), "kubelet has noticed that it is gone")
    write_checkpoint(node.kubelet)
    assert await rivals.look(node.serving) == []
    assert [plugin.rival for plugin in node.serving] == ["", ""]


async def test_a_plugin_for_other_devices_is_no_rival(node: AgentNode) -> None:
    rivals = await begun(node)
    async with rival(node.kubelet, ["mlx5_0"], "rdma/hca"):
        for _ in range(3):
            assert await rivals.look(node.serving) == []


async def test_what_another_plugin_served_before_a_node_was_taken_over_is_no_rival_s(node: AgentNode) -> None:
    async with rival(node.kubelet, OURS):
        await node.admitted("old", 3, card=0)
    await node.restart_agent()
    rivals = await begun(node)
    for _ in range(2):
        assert await rivals.look(node.serving) == []


async def test_our_own_list_may_change(node: AgentNode) -> None:
    rivals = await begun(node)

    async def change(cards: NodeGpus, offered: int) -> None:
        node.node_cards.see(cards)
        assert await rivals.look(node.serving) == []
        known = {GPU_MEM: 15 * offered, GPU_COUNT: offered}
        await until(lambda: node.kubelet.capacity() == known, "kubelet is told by both plugins")
        write_checkpoint(node.kubelet)
        assert await rivals.look(node.serving) == []

    await change(make_cards(mib=[15360]), 1)
    await change(make_cards(), 2)
    await change(make_cards(unhealthy=[1]), 1)


@pytest.mark.parametrize("text", ["{", '{"Data":{"RegisteredDevices":{"aliyun.com/gpu-mem":7}}}'])
async def test_a_checkpoint_that_cannot_be_read_tells_nothing(node: AgentNode, text: str) -> None:
    rivals = await begun(node)
    (node.kubelet.folder / CHECKPOINT).write_text(text)
    assert await rivals.look(node.serving) == []
