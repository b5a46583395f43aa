"""The reasons of quota refusals: the model is not allowed, or used up. They name the model, and contain no numbers."""

from typing import Any

import pytest

from aliquot.compat import OURS, Compat
from aliquot.endpoints.admission import AdmissionEndpoint
from aliquot.endpoints.gpushare import GpuShareEndpoint
from aliquot.engine.quotas.quota_map import read_quotas
from aliquot.model import NodeGpus
from aliquot.model.records import INVENTORY, write_inventory
from tests.factories import GPU_MEM, make_gpu
from tests.fakes import until
from tests.integration.control.test_quota_map import put_map, quota_of
from tests.integration.endpoints.endpoint import FILTER, Endpoint
from tests.integration.endpoints.test_admission import CORE, HALF, PREDICATES
from tests.integration.endpoints.wire import names_call, opened, pod_asking
from tests.integration.room import Room

QUOTA = "the namespace's GPU quota"
NODES = ["t4", "a100", "labelled", "both", "others"]
MODELS = {
    "t4": ["Tesla T4", "Tesla T4"],
    "a100": ["NVIDIA A100-SXM4-40GB"],
    "labelled": ["Tesla M40 24GB"],
    "both": ["NVIDIA A100-SXM4-40GB", "Tesla T4"],
    "others": ["Tesla K80", "Tesla V100"],
}
REFUSED = {
    "t4": f"{QUOTA} for the node's model is used up (Tesla T4)",
    "a100": f"{QUOTA} does not name the node's model (NVIDIA A100-SXM4-40GB)",
    "labelled": f"{QUOTA} does not name the node's model (M40)",
    "both": f"{QUOTA} for the node's model is used up (NVIDIA A100-SXM4-40GB, Tesla T4)",
    "others": f"{QUOTA} does not name the node's model (Tesla K80, Tesla V100)",
}


@pytest.fixture
async def nodes(room: Room) -> Room:
    for name, models in MODELS.items():
        gpus = tuple(make_gpu(index, name, model=model) for index, model in enumerate(models))
        cards = NodeGpus(name, gpus, 1024)
        labels = {"tkestack.io/gpu-model": "M40"} if name == "labelled" else {}
        metadata = {"name": name, "labels": labels, "annotations": {INVENTORY: write_inventory(cards)}}
        await room.add_node(cards, metadata=metadata)
    await set_quota(room, t4=0)
    return room


async def set_quota(room: Room, t4: int) -> None:
    put_map(room.api, "gpuquota", {"gpu_quota": quota_of(T4=t4)})
    quotas = room.plane.cluster.quotas
    await until(lambda: quotas.entries == read_quotas(quota_of(T4=t4)), "the quota is in force")


async def refused(endpoint: Endpoint, path: str, limits: dict[str, str]) -> Any:
    reply = await endpoint.post(path, names_call(pod_asking(limits), NODES))
    assert reply.json["NodeNames"] == []
    return reply.json["FailedNodes"]


@pytest.mark.parametrize(
    ("compat", "expected"),
    [
        pytest.param(OURS, {node: f"ExceedsGPUQuota: {why}" for node, why in REFUSED.items()}, id="ours"),
        pytest.param(Compat(reasons=True), dict.fromkeys(REFUSED, "ExceedsGPUQuota"), id="the original's words"),
    ],
)
async def test_a_model_outside_the_quota_and_one_used_up_have_different_reasons(
    nodes: Room, compat: Compat, expected: dict[str, str]
) -> None:
    async with opened(nodes, AdmissionEndpoint(nodes.plane, None, compat).routes()) as endpoint:
        assert await refused(endpoint, PREDICATES, HALF) == expected


async def test_other_dialects_say_the_same(nodes: Room) -> None:
    async with opened(nodes, GpuShareEndpoint(nodes.plane).routes()) as endpoint:
        assert await refused(endpoint, FILTER, {GPU_MEM: "3"}) == REFUSED


async def test_the_text_stays_the_same_while_the_result_does(nodes: Room) -> None:
    whole = {CORE: "200"}
    await set_quota(nodes, t4=1)
    async with opened(nodes, AdmissionEndpoint(nodes.plane).routes()) as endpoint:
        before = (await endpoint.post(PREDICATES, names_call(pod_asking(whole), ["t4"]))).json["FailedNodes"]
        await nodes.commit(await nodes.add_pod("uses", 3), "t4")
        after = (await endpoint.post(PREDICATES, names_call(pod_asking(whole), ["t4"]))).json["FailedNodes"]
    assert before == after == {"t4": f"ExceedsGPUQuota: {REFUSED['t4']}"}
