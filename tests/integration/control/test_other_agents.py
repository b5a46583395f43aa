"""Nodes without our inventory, where gpu-manager hands cards over: a bound pod counts, whoever writes its card."""

import asyncio
from typing import Any

import pytest

from aliquot.errors import NoRoom
from aliquot.kube import PODS
from aliquot.model import Pod
from tests.factories import container_manifest
from tests.fakes import FakeClock, answer, held, until
from tests.integration.control.test_audit import audit_of
from tests.integration.control.test_following_the_cluster import RUNNING
from tests.integration.room import Room

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
INDEX, ASSIGNED = "tencent.com/predicate-gpu-idx-0", "tencent.com/gpu-assigned"
NODE = "tencent.com/predicate-node"


async def a_node(room: Room, cards: int = 1) -> None:
    """Cards of 4 blocks."""
    await room.add_plain_node("n1", {CORE: str(100 * cards), MEMORY: str(4 * cards)})


async def add(room: Room, name: str, cores: int = 80, blocks: int = 4, **fields: Any) -> Pod:
    limits = {"resources": {"limits": {CORE: str(cores), MEMORY: str(blocks)}}}
    return await room.add_pod(name, containers=[container_manifest(gpu_mem=None) | limits], **fields)


async def bind(room: Room, pod: Pod) -> None:
    """As kube-scheduler does after a filter."""
    meta = {"name": pod.metadata.name, "namespace": "default", "uid": pod.metadata.uid}
    target = {"kind": "Node", "name": "n1"}
    await room.client.bind({"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}, timeout=20)
    await room.in_sync()


def fits(room: Room, pod: Pod) -> list[int]:
    """The indexes of the cards that the pod would get; none if it is refused."""
    demand = room.plane.cluster.demand_of(pod)
    assert demand is not None
    try:
        return [part.index for part in room.plane.cluster.fit(demand, "n1").slices()]
    except NoRoom:
        return []


def cores(room: Room) -> dict[str, int]:
    return {uuid: charge.cores for uuid, charge in room.plane.cluster.ledger.used("n1").items()}


@pytest.mark.parametrize("after", ["at once", "35 s without a word", "a restart"])
async def test_a_bound_pod_counts_from_the_binding_on(room: Room, after: str) -> None:
    await a_node(room)
    first = await add(room, "first")
    room.plane.reservations.reserve(first, "n1", 30)
    await bind(room, first)
    other = await add(room, "other")
    if after == "35 s without a word":
        await room.clock.move(35)
        await room.plane.late.look()
    if after == "a restart":
        async with Room(room.api, room.client, FakeClock()) as anew:
            assert fits(anew, other) == []
    assert fits(room, other) == []
    assert cores(room) == {"n1/0": 80}
    assert await audit_of(room).look() == []
    await room.delete_pod(first)
    assert fits(room, other) == [0]


async def test_a_pod_that_nobody_asked_us_about_counts_on_one_card_and_leaves_the_others(room: Room) -> None:
    await a_node(room, cards=2)
    await add(room, "first", node="n1")
    assert cores(room) == {"n1/0": 80}
    assert fits(room, await add(room, "other")) == [1]


async def test_the_card_that_gpu_manager_writes_counts_in_place_of_the_expected_one(room: Room) -> None:
    await a_node(room, cards=2)
    first = await add(room, "first", node="n1")
    await room.annotate(first, **{INDEX: "1", ASSIGNED: "false"})
    assert cores(room) == {"n1/1": 80}
    await room.annotate(first, **{INDEX: "0", ASSIGNED: "true"})
    assert cores(room) == {"n1/0": 80}
    assert room.plane.cluster.unplaced == {}
    assert await audit_of(room).look() == []


async def test_a_pod_that_runs_without_a_word_of_its_card_may_have_any(room: Room) -> None:
    await a_node(room, cards=2)
    first = await add(room, "first", node="n1")
    await room.report(first, phase="Running", containerStatuses=RUNNING)
    assert cores(room) == {"n1/0": 80, "n1/1": 80}


async def test_a_pod_for_which_no_card_is_free_may_get_any_until_one_is(room: Room) -> None:
    await a_node(room, cards=2)
    before = [await add(room, name, node="n1") for name in ("a", "b")]
    late_comer = await add(room, "late-comer", 60, 2, node="n1")
    assert cores(room) == {"n1/0": 140, "n1/1": 140}
    await room.delete_pod(before[0])
    await room.plane.late.look()
    assert cores(room) == {"n1/0": 60, "n1/1": 80}
    writes = [seen for seen in room.api.writes() if seen.method == "PATCH"]
    assert writes == []
    assert (await room.client.get(PODS, late_comer.metadata.name, "default")).metadata.annotations == {}


# -- keys of an earlier try, with which gpu-manager would fail the pod

OLDER: list[Any] = [
    pytest.param({INDEX: "1", ASSIGNED: "false"}, id="another card"),
    pytest.param({INDEX: "0", ASSIGNED: "true"}, id="handed over"),
    pytest.param({INDEX: "7", ASSIGNED: "false"}, id="no card"),
    pytest.param({INDEX: "junk"}, id="junk"),
]


def keys(room: Room, pod: Pod) -> dict[str, str]:
    annotations: dict[str, str] = room.api_pod(pod)["metadata"]["annotations"]
    return {key: annotations.get(key, "") for key in (INDEX, ASSIGNED, NODE)}


RIGHT = {INDEX: "0", ASSIGNED: "false", NODE: "n1"}


@pytest.mark.parametrize("older", OLDER)
@pytest.mark.parametrize("is_bound", [True, False], ids=["bound at once", "kept"])
async def test_keys_of_an_earlier_try_are_overwritten_with_what_a_filter_keeps(
    room: Room, older: dict[str, str], *, is_bound: bool
) -> None:
    await a_node(room, cards=2)
    pod = await add(room, "p", metadata={"annotations": older})
    if is_bound:
        room.api.script("PATCH", "/pods/p$", answer(500))
    room.plane.reservations.reserve(pod, "n1", 30)
    if is_bound:
        await bind(room, pod)
        assert cores(room) == {"n1/0": 80}, "they are not believed"
    await until(lambda: keys(room, pod) == RIGHT, "they are overwritten", passing=room.clock)
    await room.in_sync()
    assert cores(room) == {"n1/0": 80}
    if not is_bound:
        await bind(room, pod)
    await room.annotate(pod, **{INDEX: "1", ASSIGNED: "true"})
    assert cores(room) == {"n1/1": 80}, "what gpu-manager really gave"
    assert await audit_of(room).look() == []


async def test_what_gpu_manager_writes_at_the_same_moment_is_not_overwritten(room: Room) -> None:
    await a_node(room, cards=2)
    pod = await add(room, "p", metadata={"annotations": {INDEX: "1", ASSIGNED: "false"}})
    arrived, release = asyncio.Event(), asyncio.Event()
    room.api.script("PATCH", "/pods/p$", held(arrived, release))
    room.plane.reservations.reserve(pod, "n1", 30)
    await arrived.wait()
    await bind(room, pod)
    await room.annotate(pod, **{INDEX: "1", ASSIGNED: "true"})
    release.set()
    await room.clock.move(5)
    await room.in_sync()
    assert keys(room, pod) == {INDEX: "1", ASSIGNED: "true", NODE: ""}
    assert cores(room) == {"n1/1": 80}


async def test_keys_that_an_original_extender_wrote_before_it_bound_the_pod_are_believed(room: Room) -> None:
    """We were not asked about this pod."""
    await a_node(room, cards=2)
    pod = await add(room, "p", metadata={"annotations": {INDEX: "1", ASSIGNED: "false"}})
    await bind(room, pod)
    assert cores(room) == {"n1/1": 80}
    await room.plane.stale_annotations.look()
    assert [seen for seen in room.api.writes() if seen.method == "PATCH"] == []
