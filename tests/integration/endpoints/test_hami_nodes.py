"""A node that serves hami also places whole cards and static MIG instances: HAMi's own examples ask for all three."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aliquot.kube import Client
from aliquot.model import Charge, Gpu, NodeGpus
from aliquot.model.records import PLACEMENT, read_placement
from tests.factories import make_gpu
from tests.fakes import FakeClock, ScriptedApi
from tests.hami_examples import CARD, EXAMPLES, GPU, MEMORY, MIB, REFUSED
from tests.integration.endpoints.running import Running, running
from tests.integration.room import Room


def cards(node: str, *more: Gpu) -> NodeGpus:
    return NodeGpus(node, (*(make_gpu(index, node, model=CARD, mib=MIB) for index in range(8)), *more), 1024)


def instances(node: str) -> tuple[Gpu, ...]:
    """A ninth card, cut into two instances."""
    parent = make_gpu(8, node, model=CARD, mib=MIB)
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
            assert REFUSED[name] in why
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
