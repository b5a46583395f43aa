"""Pods that the originals have placed are adopted: what each of them writes, on a node of ours, is what is charged."""

from typing import Any

import pytest

from aliquot.ledger import State
from aliquot.model import NodeGpus
from tests.factories import container_manifest, make_gpu
from tests.fakes import FakeClock
from tests.integration.control.test_audit import audit_of
from tests.integration.room import Room

CARDS = NodeGpus("n1", tuple(make_gpu(index, mib=16384, slots=10) for index in range(2)), 1024)
OTHER = "GPU-n1-1"
WHOLE = (100, 16384)

ORIGINALS: list[Any] = [
    pytest.param({"aliyun.com/gpu-mem": "3"}, {"ALIYUN_COM_GPU_MEM_IDX": "1"}, (0, 3072), id="gpushare"),
    pytest.param(
        {"tencent.com/vcuda-core": "50", "tencent.com/vcuda-memory": "30"},
        {"tencent.com/predicate-gpu-idx-0": "4", "tencent.com/gpu-assigned": "false"},
        (50, 7680),
        id="gpu-admission, by the card's minor",
    ),
    pytest.param(
        {"elastic-gpu/gpu-percent": "20"},
        {"elastic-gpu/container-main": "1", "elastic-gpu/assume": "true"},
        (20, 3276),
        id="elastic-gpu, first names",
    ),
    pytest.param(
        {"elasticgpu.io/gpu-core": "20", "elasticgpu.io/gpu-memory": "1024"},
        {"elasticgpu.io/container-main": "1", "elasticgpu.io/assumed": "true"},
        (20, 1024),
        id="elastic-gpu, later names",
    ),
    pytest.param({"keti.com/mpsgpu": "1"}, {"UUID": OTHER}, (10, 1638), id="KETI"),
    pytest.param(
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "2000", "nvidia.com/gpucores": "30"},
        {"hami.io/vgpu-devices-allocated": f"{OTHER},NVIDIA,2000,30:;"},
        (30, 2000),
        id="HAMi",
    ),
    pytest.param(
        {"nvidia.com/gpu": "1"},
        {"hami.io/vgpu-devices-allocated": f"{OTHER},NVIDIA,16384,100:;"},
        WHOLE,
        id="HAMi, whole",
    ),
]


@pytest.mark.parametrize(("limits", "annotations", "taken"), ORIGINALS)
async def test_a_pod_that_an_original_has_placed_is_charged_where_it_says(
    room: Room, limits: dict[str, str], annotations: dict[str, str], taken: tuple[int, int]
) -> None:
    await room.add_node(CARDS)
    container = container_manifest(gpu_mem=None) | {"resources": {"limits": limits}}
    pod = await room.add_pod(containers=[container], metadata={"annotations": annotations}, node="n1")
    entry = room.entries()[pod.metadata.uid]
    assert entry.state is State.BOUND
    assert {uuid: (charge.cores, charge.mib) for uuid, charge in entry.charges.items()} == {OTHER: taken}
    assert room.plane.cluster.unplaced == {}
    assert await audit_of(room).look() == []
    async with Room(room.api, room.client, FakeClock()) as anew:
        assert anew.entries()[pod.metadata.uid].charges == entry.charges
    await room.delete_pod(pod)
    assert room.plane.cluster.ledger.used("n1") == {}


async def test_whole_cards_of_nvidia_s_plug_in_count_by_their_number(room: Room) -> None:
    await room.add_node(CARDS, capacity={"nvidia.com/gpu": "2"})
    container = container_manifest(gpu_mem=None) | {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    first = await room.add_pod("first", containers=[container], node="n1")
    await room.add_pod("second", containers=[container], node="n1")
    assert {(charge.cores, charge.mib) for charge in room.plane.cluster.ledger.used("n1").values()} == {WHOLE}
    assert len(room.plane.cluster.ledger.used("n1")) == 2
    assert await audit_of(room).look() == []
    await room.delete_pod(first)
    assert len(room.plane.cluster.ledger.used("n1")) == 1
