"""A node's inventory comes, goes and changes while pods hold its cards: whatever they are called, none is sold twice.

Without an inventory a node has cards with made-up names, `node/index`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aliquot.control.state.events import QuotasRead
from aliquot.embedded.api import resources
from aliquot.errors import AliquotError, NoRoom
from aliquot.kube import PODS
from aliquot.ledger import State
from aliquot.model import NodeGpus, Pod
from aliquot.model.records import INVENTORY, PLACEMENT, read_placement, write_inventory
from tests.factories import GPU_COUNT, GPU_MEM, make_cards, make_gpu
from tests.fakes import FakeClock, cut_after, cut_before, held
from tests.integration.control.test_audit import audit_of
from tests.integration.control.test_following_the_cluster import RUNNING
from tests.integration.room import Room

CARDS = make_cards()


async def show(room: Room, cards: NodeGpus | None) -> None:
    """Publish an inventory on the node, or take it away."""
    inventory = {INVENTORY: write_inventory(cards)} if cards else {}
    room.api.registry.rewrite(resources.NODES, "", "n1", lambda node: _annotated(node, inventory))
    await room.in_sync()


def _annotated(node: Any, annotations: dict[str, str]) -> Any:
    return {**node, "metadata": {**node["metadata"], "annotations": annotations}}


async def offer(room: Room, cards: int) -> None:
    """What an original's plugin tells kubelet, and kubelet the cluster."""
    capacity = {GPU_MEM: str(15 * cards), GPU_COUNT: str(cards)}
    status = {"capacity": capacity, "allocatable": capacity}
    room.api.registry.rewrite(resources.NODES, "", "n1", lambda node: {**node, "status": node["status"] | status})
    await room.in_sync()


@asynccontextmanager
async def restarted(room: Room) -> AsyncIterator[Room]:
    """A new process on the same cluster."""
    async with Room(room.api, room.client, FakeClock()) as anew:
        yield anew


async def placed(room: Room, name: str, units: int) -> Pod:
    pod = await room.add_pod(name, units)
    await room.commit(pod, "n1")
    await room.in_sync()
    return pod


async def refuses(room: Room, units: int) -> bool:
    """Whether nobody gets so many units; nothing is left behind."""
    pod = await room.add_pod(f"asks-{units}", units)
    try:
        room.plane.cluster.fit(_demand(room, pod), "n1")
    except NoRoom:
        return True
    finally:
        await room.delete_pod(pod)
    return False


def _demand(room: Room, pod: Pod) -> Any:
    demand = room.plane.cluster.demand_of(pod)
    assert demand is not None
    return demand


# -- it goes


@pytest.mark.parametrize("runs", [True, False], ids=["running", "bound"])
async def test_a_full_node_that_loses_its_inventory_is_not_sold_again(room: Room, *, runs: bool) -> None:
    await room.add_node(CARDS)
    for name in ("a", "b"):
        pod = await placed(room, name, 15)
        if runs:
            await room.report(pod, phase="Running", containerStatuses=RUNNING)
    await show(room, None)
    assert room.used() == {0: 15, 1: 15}
    assert await refuses(room, 1)
    async with restarted(room) as anew:
        assert anew.used() == {0: 15, 1: 15}
        assert await refuses(anew, 1)
    await room.in_sync()
    assert await audit_of(room).look() == []


async def test_a_half_used_node_that_loses_its_inventory_sells_the_other_half(room: Room) -> None:
    await room.add_node(CARDS)
    await placed(room, "a", 15)
    await show(room, None)
    pod = await placed(room, "b", 15)
    record = read_placement(room.api_pod(pod)["metadata"]["annotations"][PLACEMENT])
    assert [part.uuid for part in record.slices()] == ["n1/1"]
    await show(room, CARDS)
    assert room.used() == {0: 15, 1: 15}
    async with restarted(room) as anew:
        assert anew.used() == {0: 15, 1: 15}


async def test_each_pod_is_on_its_own_card_again_when_the_inventory_comes_back_in_another_order(room: Room) -> None:
    await room.add_node(CARDS)
    await placed(room, "a", 10)
    await show(room, None)
    swapped = NodeGpus("n1", (make_gpu(0, uuid="GPU-n1-1"), make_gpu(1, uuid="GPU-n1-0")), 1024)
    await show(room, swapped)
    assert room.used()[1] == 10
    async with restarted(room) as anew:
        assert anew.used()[1] == 10


@pytest.mark.parametrize("runs", [True, False], ids=["running", "bound"])
async def test_a_pod_on_a_card_that_made_up_names_do_not_reach_is_charged_on_all_of_them(
    room: Room, *, runs: bool
) -> None:
    """Which of the two cards is left, nobody tells."""
    await room.add_node(CARDS)
    await placed(room, "a", 15)
    pod = await placed(room, "b", 10)
    assert room.used() == {0: 15, 1: 10}
    await room.delete_pod(await room_pod(room, "a"))
    if runs:
        await room.report(pod, phase="Running", containerStatuses=RUNNING)
    await show(room, None)
    await offer(room, 1)
    assert room.used() == {0: 10}
    async with restarted(room) as anew:
        assert anew.used() == {0: 10}
    await show(room, CARDS)
    assert room.used() == {1: 10}


async def room_pod(room: Room, name: str) -> Pod:
    pod = room.plane.pods.get(f"default/{name}")
    assert pod is not None
    return pod


async def test_what_quotas_count_does_not_change_with_the_cards_names(room: Room) -> None:
    await room.add_node(CARDS)
    cluster = room.plane.cluster
    cluster.apply(QuotasRead('{"default": {"memory": {"": "20Gi"}}}'))
    await placed(room, "a", 10)
    used = cluster.totals.usage.of("default")
    await show(room, None)
    assert sum(amount.mib for amount in cluster.totals.usage.of("default").values()) == 10240
    await show(room, CARDS)
    assert cluster.totals.usage.of("default") == used


# -- it comes while a Binding is on its way


async def test_an_inventory_that_comes_while_a_binding_is_on_its_way_has_the_pod_on_its_card(room: Room) -> None:
    await room.add_plain_node("n1", {GPU_MEM: "30", GPU_COUNT: "2"})
    pod = await room.add_pod("p", 15)
    arrived, release = asyncio.Event(), asyncio.Event()
    room.api.script("POST", "/binding$", held(arrived, release))
    commit = asyncio.create_task(room.commit(pod, "n1"))
    await arrived.wait()
    await show(room, CARDS)
    assert room.used() == {0: 15}
    assert not await refuses(room, 15)
    await placed(room, "other", 15)
    release.set()
    assert not (await commit).already
    await room.in_sync()
    assert room.used() == {0: 15, 1: 15}
    assert room.entries()[pod.metadata.uid].state is State.BOUND
    async with restarted(room) as anew:
        assert anew.used() == {0: 15, 1: 15}
    await room.in_sync()
    assert await audit_of(room).look() == []


async def test_a_binding_that_was_made_counts_on_the_new_name_before_the_pod_is_seen(room: Room) -> None:
    await room.add_plain_node("n1", {GPU_MEM: "15", GPU_COUNT: "1"})
    pod = await room.add_pod("p", 15)
    watching, go_on = asyncio.Event(), asyncio.Event()
    room.api.script("GET", "/pods.*watch=", held(watching, go_on))
    room.api.cut_watches("pods")
    await watching.wait()
    await room.commit(pod, "n1")
    inventory = {INVENTORY: write_inventory(make_cards(mib=(15360,)))}
    room.api.registry.rewrite(resources.NODES, "", "n1", lambda node: _annotated(node, inventory))
    await room.plane.nodes.refresh()
    assert room.plane.pods.get("default/p") == pod, "the case is about an informer that lags behind"
    assert room.used() == {0: 15}
    go_on.set()
    await room.in_sync()
    assert room.used() == {0: 15}


@pytest.mark.parametrize("fault", [cut_before, cut_after])
@pytest.mark.parametrize("comes", [True, False], ids=["comes", "goes"])
async def test_a_binding_without_an_answer_is_sent_again_for_the_same_card(
    room: Room, fault: Any, *, comes: bool
) -> None:
    if comes:
        await room.add_plain_node("n1", {GPU_MEM: "30", GPU_COUNT: "2"})
    else:
        await room.add_node(CARDS)
    pod = await room.add_pod("p", 10)
    room.api.script("POST", "/binding$", fault)
    with pytest.raises(AliquotError):
        await room.commit(pod, "n1")
    await show(room, CARDS if comes else None)
    assert room.used() == {0: 10}
    unbound = await room.client.get(PODS, "p", "default") if fault is cut_before else pod
    assert (await room.commit(unbound, "n1")).already is (fault is not cut_before)
    await room.in_sync()
    assert room.used() == {0: 10}


async def test_a_part_that_a_filter_kept_is_the_one_that_the_pod_gets_under_its_new_name(room: Room) -> None:
    await room.add_plain_node("n1", {GPU_MEM: "30", GPU_COUNT: "2"})
    await placed(room, "a", 1)
    pod = await room.add_pod("p", 15)
    room.plane.reservations.reserve(pod, "n1", 60)
    await show(room, CARDS)
    assert room.used() == {0: 1, 1: 15}
    await room.commit(pod, "n1")
    await room.in_sync()
    record = read_placement(room.api_pod(pod)["metadata"]["annotations"][PLACEMENT])
    assert [part.uuid for part in record.slices()] == ["GPU-n1-1"]
    assert room.used() == {0: 1, 1: 15}


# -- it changes


async def test_a_card_keeps_its_pods_when_it_gets_another_index(room: Room) -> None:
    await room.add_node(CARDS)
    await placed(room, "a", 10)
    await show(room, NodeGpus("n1", (make_gpu(0, uuid="GPU-n1-1"), make_gpu(1, uuid="GPU-n1-0")), 1024))
    assert room.used() == {1: 10}
    async with restarted(room) as anew:
        assert anew.used() == {1: 10}, "gpushare's own key has the index of then, as our record has"


async def test_another_card_at_the_same_index_is_empty(room: Room) -> None:
    await room.add_node(CARDS)
    await placed(room, "a", 10)
    await show(room, NodeGpus("n1", (make_gpu(0, uuid="GPU-new"), make_gpu(1)), 1024))
    assert room.used() == {}
    assert list(room.plane.cluster.ledger.used("n1")) == ["GPU-n1-0"]
    await show(room, CARDS)
    assert room.used() == {0: 10}


async def test_renumbered_cards_are_known_by_their_new_numbers_when_the_inventory_vanishes(
    room: Room,
) -> None:
    """Without uuids numbers are all that there is: those of now count, not those of the record."""
    await room.add_node(CARDS)
    first = await placed(room, "first", 15)
    await room.report(first, phase="Running", containerStatuses=RUNNING)
    renumbered = NodeGpus("n1", (make_gpu(0, uuid="GPU-n1-1"), make_gpu(1, uuid="GPU-n1-0")), 1024)
    await show(room, renumbered)
    await show(room, None)
    assert room.used() == {1: 15}
    await placed(room, "second", 15)
    await show(room, renumbered)
    assert room.plane.cluster.ledger.oversold("n1") == []
    assert room.used() == {0: 15, 1: 15}
    assert await audit_of(room).look() == []
