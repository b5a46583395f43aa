"""A node that serves hami also places whole cards and static MIG instances: HAMi's own examples ask for all three."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from aliquot.kube import Client
from aliquot.model import Charge, Gpu, NodeGpus
from aliquot.model.records import PLACEMENT, read_placement
from tests.factories import make_gpu
from tests.fakes import FakeClock, ScriptedApi
from tests.integration.endpoints.running import Running, running
from tests.integration.room import Room

GPU, MEMORY, PERCENT, CORES = (f"nvidia.com/{name}" for name in ("gpu", "gpumem", "gpumem-percentage", "gpucores"))
MIB = 40960
LARGE = "NVIDIA A100-SXM4-40GB"

EXAMPLES: list[tuple[str, Mapping[str, str], Mapping[str, str]]] = [
    # examples/nvidia of HAMi 2.10, by file: what each pod asks for
    ("default-use", {GPU: "1", MEMORY: "3000", CORES: "30"}, {}),
    ("default-use-legacy", {GPU: "2"}, {}),
    ("dynamic-mig-example", {GPU: "2", MEMORY: "8000"}, {"nvidia.com/vgpu-mode": "mig"}),
    ("example", {GPU: "1", MEMORY: "3000"}, {}),
    ("mig-example", {"nvidia.com/mig-3g.20gb": "1"}, {}),
    ("specify-card-type-not-use", {GPU: "2"}, {"nvidia.com/nouse-gputype": "1080,2080"}),
    ("specify-card-type-to-use", {GPU: "2"}, {"nvidia.com/use-gputype": "A100,V100"}),
    (
        "specify-scheduling-policy",
        {GPU: "1"},
        {"hami.io/node-scheduler-policy": "spread", "hami.io/gpu-scheduler-policy": "binpack"},
    ),
    ("specify-uuid-not-use", {GPU: "2"}, {"nvidia.com/nouse-gpuuuid": "GPU-n2-0"}),
    ("specify-uuid-to-use", {GPU: "1"}, {"nvidia.com/use-gpuuuid": "GPU-n3-6,GPU-n3-7"}),
    ("use-as-normal-1", {GPU: "1"}, {}),
    ("use-as-normal-2", {GPU: "1"}, {}),
    ("use-exclusive-card", {GPU: "2", PERCENT: "100", CORES: "100"}, {}),
    ("use-memory-fraction", {GPU: "2", PERCENT: "50", CORES: "30"}, {}),
    ("use-sharing-card-1", {GPU: "1", PERCENT: "40", CORES: "60"}, {}),
    ("use-sharing-card-2", {GPU: "1", PERCENT: "60", CORES: "40"}, {}),
    ("vllm-cross-vgpu", {GPU: "2", PERCENT: "30", CORES: "30"}, {}),
]
REFUSED = {"dynamic-mig-example"}


def cards(node: str, *more: Gpu) -> NodeGpus:
    return NodeGpus(node, (*(make_gpu(index, node, model=LARGE, mib=MIB) for index in range(8)), *more), 1024)


def instances(node: str) -> tuple[Gpu, ...]:
    """A ninth card, cut into two instances."""
    parent = make_gpu(8, node, model=LARGE, mib=MIB)
    cut = (
        make_gpu(9 + half, node, uuid=f"MIG-{node}-{half}", mib=MIB // 2, parent=parent.uuid, profile="3g.20gb")
        for half in (0, 1)
    )
    return (parent, *cut)


@pytest.fixture
async def hami(room: Room) -> AsyncIterator[Running]:
    async with running(room, "hami", cards("n1"), cards("n2"), cards("n3", *instances("n3"))) as made:
        yield made


async def test_the_examples_of_hami_run_on_the_cards_of_their_placements(
    hami: Running, room: Room, scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    """All of them at once."""
    for name, limits, annotations in EXAMPLES:
        if name in REFUSED:
            (why,) = await hami.refusal(name, limits, annotations)
            assert "annotation nvidia.com/vgpu-mode: 'mig' is not supported; write hami-core or leave it out." in why
            continue
        pod = await hami.starts(name, limits, annotations)
        placement = read_placement(pod.metadata.annotations[PLACEMENT])
        assert hami.sees(pod) == [part.uuid for part in placement.containers["main"]]
        assert len(hami.sees(pod)) == int(limits.get(GPU, "1"))
    entries = {entry.uid: entry for entry in room.plane.cluster.ledger.all()}
    assert len(entries) == len(EXAMPLES) - len(REFUSED) == 16
    assert not any(room.plane.cluster.ledger.oversold(node) for node in ("n1", "n2", "n3"))
    async with Room(scripted, client, clock) as anew:
        assert {entry.uid: entry.charges for entry in anew.plane.cluster.ledger.all()} == {
            uid: entry.charges for uid, entry in entries.items()
        }


async def test_a_whole_card_is_nobody_elses_and_stands_in_hamis_records(hami: Running, room: Room) -> None:
    whole = await hami.starts("whole", {GPU: "8"})
    node = whole.spec.node_name
    assert set(room.plane.cluster.ledger.used(node).values()) == {Charge(100, MIB, shares=1)}
    part = await hami.starts("part", {GPU: "1", MEMORY: "1000"})
    assert part.spec.node_name != node
    written = whole.metadata.annotations
    assert (
        written["hami.io/vgpu-devices-allocated"]
        == "".join(f"{uuid},NVIDIA,{MIB},0:" for uuid in hami.sees(whole)) + ";"
    )
    assert (written["hami.io/vgpu-node"], written["hami.io/bind-phase"]) == (node, "success")
    assert whole.metadata.labels == {"hami.io/vgpu-node": node}


async def test_an_instance_has_no_record_of_hami(hami: Running) -> None:
    pod = await hami.starts("instance", {"nvidia.com/mig-3g.20gb": "1"})
    assert pod.spec.node_name == "n3"
    assert {key for key in pod.metadata.annotations if key.startswith("hami.io/")} == set()


async def test_kubelets_ids_do_not_oversell_whole_cards(hami: Running) -> None:
    """Each card has ten ids, and a whole card takes one of them."""
    given = [card for number in range(24) for card in hami.sees(await hami.starts(f"p{number}", {GPU: "1"}))]
    assert Counter(given).most_common(1)[0][1] == 1
    assert len(given) == 24
    assert await hami.refusal("late", {GPU: "1"}) == {"not enough room on the node's GPUs now"}
    part: dict[str, Any] = {GPU: "1", MEMORY: "1"}
    assert await hami.refusal("part", part) == {"NodeUnfitPod: not enough room on the node's GPUs now"}


async def test_a_mig_profile_that_no_node_has_is_refused_by_name(hami: Running) -> None:
    assert await hami.refusal("instance", {"nvidia.com/mig-1g.5gb": "1"}) == {"no GPU that the pod's constraints allow"}
