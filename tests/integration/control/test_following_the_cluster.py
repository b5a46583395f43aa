"""The books follow what the cluster shows: who is bound, who ended, which cards a node has."""

from typing import Any

import pytest

from aliquot.dialects.gpushare import GPU_COUNT, GPU_MEM, IDX, POD
from aliquot.errors import NoRoom
from aliquot.kube import NODES
from aliquot.model.records import INVENTORY, PLACEMENT
from tests.factories import make_cards
from tests.integration.room import Room

RUNNING = [{"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]
ENDED = [{"name": "main", "state": {"terminated": {"exitCode": 0}}}]


async def test_a_part_is_released_when_the_containers_have_ended_not_when_deletion_is_asked_for(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod()
    await room.commit(pod, "n1")
    await room.report(pod, phase="Running", containerStatuses=RUNNING)
    await room.delete_pod(pod, grace=30)
    assert "deletionTimestamp" in room.api_pod(pod)["metadata"]
    assert room.used() == {0: 3}
    await room.report(pod, phase="Failed", containerStatuses=RUNNING)
    assert room.used() == {0: 3}
    await room.report(pod, phase="Failed", containerStatuses=ENDED)
    assert room.used() == {}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_has_ended_holds_nothing(room: Room, phase: str) -> None:
    await room.add_node()
    pod = await room.add_pod()
    await room.commit(pod, "n1")
    await room.report(pod, phase=phase)
    assert room.used() == {}


async def test_a_deleted_pod_holds_nothing(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod()
    await room.commit(pod, "n1")
    await room.delete_pod(pod)
    assert room.used() == {}


async def test_sixty_pods_of_one_name_in_quick_succession_are_counted_once(room: Room) -> None:
    """gpushare.md 8, case 17: the original counted 53 of them."""
    await room.add_node()
    for _ in range(60):
        pod = await room.add_pod("again", 1)
        await room.commit(pod, "n1")
        await room.delete_pod(pod)
    pod = await room.add_pod("again", 1)
    await room.commit(pod, "n1")
    assert room.used() == {0: 1}


ADOPTED: list[Any] = [
    pytest.param({IDX: "1", POD: "3"}, {1: 3}, id="a pod that the original placed is adopted"),
    pytest.param({IDX: "1", POD: "77"}, {1: 3}, id="it is charged what it asks for, whatever the annotation says"),
    pytest.param({}, {}, id="a pod bound by someone else without a placement holds nothing"),
    pytest.param({IDX: "7"}, {}, id="an index that the node does not have holds nothing"),
    pytest.param({IDX: "-1"}, {}, id="the original's mark of failure holds nothing"),
    pytest.param({IDX: "x"}, {}, id="an index that is none holds nothing"),
    pytest.param({PLACEMENT: "{"}, {}, id="a record that cannot be read holds nothing"),
    pytest.param(
        {PLACEMENT: '{"v":1,"node":"n9","dialect":"gpushare","containers":{}}'}, {}, id="a record for another node"
    ),
    pytest.param(
        {
            PLACEMENT: '{"v":1,"node":"n1","dialect":"gpushare","containers":'
            '{"main":[{"uuid":"GPU-n1-0","index":0,"minor":0,"cores":0,"mib":-9999}]}}'
        },
        {},
        id="a record with a negative part makes no room",
    ),
]


@pytest.mark.parametrize(("annotations", "used"), ADOPTED)
async def test_bound_pods_are_adopted_by_what_is_written_on_them(
    room: Room, annotations: dict[str, str], used: dict[int, int]
) -> None:
    await room.add_node()
    await room.add_pod(metadata={"annotations": annotations}, node="n1")
    assert room.used() == used


async def test_a_placement_on_an_unbound_pod_is_not_trusted(room: Room) -> None:
    await room.add_node()
    await room.add_pod(metadata={"annotations": {IDX: "1", POD: "3"}})
    assert room.used() == {}


async def test_a_pod_that_the_original_placed_counts_on_a_node_without_inventory(room: Room) -> None:
    await room.add_pod(metadata={"annotations": {IDX: "1"}}, node="old")
    await room.add_plain_node("old", {GPU_MEM: "30", GPU_COUNT: "2"})
    assert room.used("old") == {1: 3}


async def test_a_node_s_ids_are_mapped_anew_when_its_inventory_appears(room: Room) -> None:
    await room.add_plain_node("old", {GPU_MEM: "30", GPU_COUNT: "2"})
    await room.add_pod(metadata={"annotations": {IDX: "1"}}, node="old")
    assert list(room.plane.books.ledger.used("old")) == ["old/1"]
    await room.change_node(make_cards("old"))
    assert list(room.plane.books.ledger.used("old")) == ["GPU-old-1"]
    assert room.used("old") == {1: 3}


async def test_a_pod_seen_before_its_node_counts_when_the_node_comes(room: Room) -> None:
    await room.add_pod(metadata={"annotations": {IDX: "0"}}, node="n1")
    assert room.used() == {}
    await room.add_node()
    assert room.used() == {0: 3}


async def test_a_node_that_vanishes_sells_nothing_and_one_that_comes_back_has_its_pods(room: Room) -> None:
    cards = await room.add_node()
    pod, other = await room.add_pod("p"), await room.add_pod("q")
    await room.commit(pod, "n1")
    await room.remove_node("n1")
    with pytest.raises(NoRoom, match="node not found"):
        await room.commit(other, "n1")
    await room.add_node(cards)
    assert room.used() == {0: 3}


async def test_the_part_of_a_pod_that_ends_while_its_node_is_away_is_free_when_it_comes_back(room: Room) -> None:
    cards = await room.add_node()
    pod = await room.add_pod()
    await room.commit(pod, "n1")
    await room.remove_node("n1")
    await room.delete_pod(pod)
    await room.add_node(cards)
    assert room.used() == {}


async def test_a_card_that_is_lost_sells_nothing_and_holds_what_it_held_when_it_is_back(room: Room) -> None:
    await room.add_node(make_cards(mib=(15360, 15360)))
    pod = await room.add_pod("p", 15)
    await room.commit(pod, "n1")
    await room.add_pod("q", 15, metadata={"annotations": {IDX: "1"}}, node="n1")
    await room.change_node(make_cards(mib=(15360,)))
    late = await room.add_pod("late", 1)
    with pytest.raises(NoRoom):
        await room.commit(late, "n1")
    await room.change_node(make_cards(mib=(15360, 15360)))
    assert room.used() == {0: 15, 1: 15}


async def test_an_unhealthy_card_takes_nobody_and_keeps_its_pods(room: Room) -> None:
    await room.add_node(make_cards())
    pod = await room.add_pod("p", 5)
    await room.commit(pod, "n1")
    await room.change_node(make_cards(unhealthy=[0]))
    other = await room.add_pod("q", 5)
    await room.commit(other, "n1")
    assert room.used() == {0: 5, 1: 5}


async def test_an_inventory_that_cannot_be_read_keeps_the_last_good_one(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod()
    await room.commit(pod, "n1")
    await room.client.patch(NODES, "n1", {"metadata": {"annotations": {INVENTORY: '{"v":9}'}}})
    await room.in_step()
    assert room.used() == {0: 3}
    other = await room.add_pod("q")
    await room.commit(other, "n1")


async def test_a_card_that_others_sold_twice_is_full_not_bottomless(room: Room) -> None:
    """gpushare.md 8, case 14: the original accepted anything there."""
    await room.add_node(make_cards(mib=(15360,)))
    for name in ("a", "b"):
        await room.add_pod(name, 10, metadata={"annotations": {IDX: "0"}}, node="n1")
    assert room.plane.books.ledger.oversold("n1") == ["GPU-n1-0"]
    pod = await room.add_pod("p", 1)
    with pytest.raises(NoRoom):
        await room.commit(pod, "n1")
