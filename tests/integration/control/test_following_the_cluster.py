"""The cluster state follow what the cluster shows: who is bound, who ended, which cards a node has."""

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from aliquot.dialects.gpushare import ASSIGNED, IDX, POD
from aliquot.errors import NoRoom
from aliquot.kube import NODES, Client
from aliquot.model import NodeGpus, Placement, Pod, Slice
from aliquot.model.records import INVENTORY, OBSERVED, PLACEMENT, write_observed, write_placement
from tests.factories import GPU_COUNT, GPU_MEM, container_manifest, make_cards, make_gpu
from tests.fakes import FakeClock
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


@pytest.mark.vectors
async def test_sixty_pods_of_one_name_in_quick_succession_are_counted_once(room: Room) -> None:
    """The original gpushare counted 53 of them."""
    await room.add_node()
    for _ in range(60):
        pod = await room.add_pod("again", 1)
        await room.commit(pod, "n1")
        await room.delete_pod(pod)
    pod = await room.add_pod("again", 1)
    await room.commit(pod, "n1")
    assert room.used() == {0: 1}


def record(*, container: str = "main", dialect: str = "gpushare", **part: Any) -> str:
    """Our record of a part of n1's first card, with other values where a test names them."""
    slices = {container: (replace(Slice("GPU-n1-0", 0, 3, 0, 3072), **part),)}
    return write_placement(Placement("n1", dialect, slices))


GARBAGE: list[Any] = [
    pytest.param({}, id="no record"),
    pytest.param({IDX: "7"}, id="an index that the node does not have"),
    pytest.param({IDX: "-1"}, id="the original's mark of failure"),
    pytest.param({IDX: "x"}, id="an index that is none"),
    pytest.param({PLACEMENT: "{"}, id="a record that cannot be read"),
    pytest.param({PLACEMENT: "{", IDX: "0"}, id="a record that cannot be read beside an index"),
    pytest.param({PLACEMENT: record(mib=-9999)}, id="a record with a negative part"),
    pytest.param({PLACEMENT: record(dialect="hami")}, id="a record of another dialect"),
    pytest.param({PLACEMENT: record(container="other")}, id="a record without its container"),
    pytest.param(
        {PLACEMENT: '{"v":1,"node":"n9","dialect":"gpushare","containers":{}}'}, id="a record for another node"
    ),
]


@pytest.mark.parametrize("mark", ["false", "true"])
@pytest.mark.parametrize("annotations", GARBAGE)
async def test_a_bound_pod_that_never_ran_holds_nothing_without_a_good_record(
    room: Room, annotations: dict[str, str], mark: str
) -> None:
    """Users can write the mark of a hand-over."""
    await room.add_node()
    await room.add_pod(metadata={"annotations": annotations | {ASSIGNED: mark}}, node="n1")
    assert room.used() == {}


@pytest.mark.parametrize("annotations", GARBAGE)
async def test_a_pod_that_got_an_unknown_card_is_charged_on_every_card(room: Room, annotations: dict[str, str]) -> None:
    """Whichever card it has must not be sold again."""
    await room.add_node()
    pod = await room.add_pod(metadata={"annotations": annotations | {ASSIGNED: "true"}}, node="n1")
    await room.report(pod, phase="Running", containerStatuses=RUNNING)
    assert room.used() == {0: 3, 1: 3}
    with pytest.raises(NoRoom):
        await room.commit(await room.add_pod("large", 13), "n1")
    await room.commit(await room.add_pod("fits", 12), "n1")


ADOPTED: list[Any] = [
    pytest.param({IDX: "1", POD: "3"}, {1: 3}, id="a pod that the original placed is adopted"),
    pytest.param({IDX: "1", POD: "77"}, {1: 3}, id="it is charged what it asks for, whatever the annotation says"),
    pytest.param({PLACEMENT: record()}, {0: 3}, id="a pod that we placed is adopted"),
    pytest.param({PLACEMENT: record(), IDX: "1"}, {0: 3, 1: 3}, id="two records that disagree: both count"),
    pytest.param({PLACEMENT: record(mib=0)}, {0: 3}, id="a part of nothing counts as what it asks for"),
    pytest.param({PLACEMENT: record(mib=1)}, {0: 3}, id="a part too small counts as what it asks for"),
    pytest.param({PLACEMENT: record(mib=5120)}, {0: 3}, id="a part too large counts as what it asks for"),
    pytest.param({PLACEMENT: record(index=1, minor=9)}, {0: 3}, id="the uuid alone says which card it is"),
]


@pytest.mark.parametrize(("annotations", "used"), ADOPTED)
async def test_bound_pods_are_adopted_by_what_is_written_on_them(
    room: Room, annotations: dict[str, str], used: dict[int, int]
) -> None:
    await room.add_node()
    await room.add_pod(metadata={"annotations": annotations}, node="n1")
    assert room.used() == used


async def test_a_pod_of_the_original_that_also_names_a_number_of_cards_is_adopted_by_its_memory(room: Room) -> None:
    """The original counts gpu-mem alone; we would not place such a pod, but it has its part."""
    await room.add_node()
    limits = {"resources": {"limits": {GPU_MEM: "3", GPU_COUNT: "1"}}}
    await room.add_pod(
        containers=[container_manifest() | limits], metadata={"annotations": {IDX: "1", ASSIGNED: "true"}}, node="n1"
    )
    assert room.used() == {1: 3}


REWRITTEN: list[Any] = [
    pytest.param({PLACEMENT: record(uuid="GPU-n1-1", mib=0), IDX: "1"}, id="another card"),
    pytest.param({PLACEMENT: "{"}, id="a record that cannot be read"),
    pytest.param({PLACEMENT: "{", ASSIGNED: "true"}, id="the same with the mark of a hand-over"),
    pytest.param({PLACEMENT: record(mib=15360)}, id="a larger part"),
]


@pytest.mark.parametrize("annotations", REWRITTEN)
async def test_a_record_that_is_rewritten_on_a_bound_pod_changes_nothing(
    room: Room, annotations: dict[str, str]
) -> None:
    await room.add_node()
    ours = await room.add_pod("ours")
    await room.commit(ours, "n1")
    theirs = await room.add_pod("theirs", metadata={"annotations": {IDX: "0", ASSIGNED: "true"}}, node="n1")
    for pod in (ours, theirs):
        await room.annotate(pod, **annotations)
    assert room.used() == {0: 6}
    await room.change_node(make_cards(mib=(15 * 1024, 80 * 1024)))
    assert room.used() == {0: 6}, "nor does it when the node's cards change later"


async def test_a_server_started_anew_charges_a_pod_on_every_card_when_its_record_was_destroyed(
    room: Room, client: Client, clock: FakeClock
) -> None:
    await room.add_node()
    for name, statuses in (("has-a-card", RUNNING), ("waits-for-one", [])):
        pod = await room.add_pod(name)
        await room.commit(pod, "n1")
        await room.report(pod, phase="Running" if statuses else "Pending", containerStatuses=statuses)
        await room.annotate(pod, **{PLACEMENT: "{", ASSIGNED: "true"})
    assert room.used() == {0: 6}
    async with Room(room.api, client, clock) as anew:
        assert anew.used() == {0: 3, 1: 3}


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
    assert list(room.plane.cluster.ledger.used("old")) == ["old/1"]
    await room.change_node(make_cards("old"))
    assert list(room.plane.cluster.ledger.used("old")) == ["GPU-old-1"]
    assert room.used("old") == {1: 3}


async def test_an_original_s_record_that_names_minors_is_read_again_when_the_inventory_tells_them(room: Room) -> None:
    """gpu-manager names cards by their minors. Until the node's inventory appears, nobody knows these."""
    capacity = {"tencent.com/vcuda-core": "200", "tencent.com/vcuda-memory": "120"}
    limits = {"tencent.com/vcuda-core": "20", "tencent.com/vcuda-memory": "8"}
    keys = {
        "tencent.com/predicate-gpu-idx-0": "1",
        "tencent.com/gpu-assigned": "true",
        "tencent.com/predicate-time": "1",
    }
    await room.add_plain_node("old", capacity)
    container = container_manifest("main", None, resources={"limits": limits})
    await room.add_pod(
        metadata={"annotations": keys}, node="old", containers=[container], status={"containerStatuses": RUNNING}
    )
    assert list(room.plane.cluster.ledger.used("old")) == ["old/1"]
    cards = NodeGpus("old", (make_gpu(0, "old", minor=1), make_gpu(1, "old", minor=0)), 1024)
    await room.change_node(cards)
    assert list(room.plane.cluster.ledger.used("old")) == ["GPU-old-0"]


async def test_a_pod_that_our_agent_adopted_from_nvidia_s_plugin_counts_on_its_own_card(room: Room) -> None:
    await room.add_plain_node("n1", {"nvidia.com/gpu": "2"})
    await room.change_node(make_cards())
    container = container_manifest("main", None, resources={"limits": {"nvidia.com/gpu": "1"}})
    pod = await room.add_pod(node="n1", containers=[container])
    await room.report(pod, phase="Running", containerStatuses=RUNNING)
    (first,) = room.plane.cluster.ledger.used("n1")
    other = next(uuid for uuid in ("GPU-n1-0", "GPU-n1-1") if uuid != first)
    record = write_observed(pod.metadata.uid, {"main": [other]})
    await room.annotate(pod, **{OBSERVED: record})
    assert list(room.plane.cluster.ledger.used("n1")) == [other]


async def test_what_was_placed_by_a_node_s_capacity_stays_sold_when_its_inventory_appears(
    room: Room, client: Client, clock: FakeClock
) -> None:
    """Our own record names `old/0` then: the card that got a uuid meanwhile must not be sold again."""
    await room.add_plain_node("old", {GPU_MEM: "30", GPU_COUNT: "2"})
    for name in ("a", "b"):
        await room.commit(await room.add_pod(name, 15), "old")
    assert sorted(room.plane.cluster.ledger.used("old")) == ["old/0", "old/1"]
    await room.change_node(make_cards("old"))
    late = await room.add_pod("late", 15)
    async with Room(room.api, client, clock) as anew:
        for seen in (room, anew):
            assert sorted(seen.plane.cluster.ledger.used("old")) == ["GPU-old-0", "GPU-old-1"]
            assert seen.used("old") == {0: 15, 1: 15}
            with pytest.raises(NoRoom):
                await seen.commit(late, "old")


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
    await room.in_sync()
    assert room.used() == {0: 3}
    other = await room.add_pod("q")
    await room.commit(other, "n1")


async def test_a_card_that_others_sold_twice_is_full_not_bottomless(room: Room) -> None:
    """The original gpushare accepted anything there."""
    await room.add_node(make_cards(mib=(15360,)))
    for name in ("a", "b"):
        await room.add_pod(name, 10, metadata={"annotations": {IDX: "0"}}, node="n1")
    assert room.plane.cluster.ledger.oversold("n1") == ["GPU-n1-0"]
    pod = await room.add_pod("p", 1)
    with pytest.raises(NoRoom):
        await room.commit(pod, "n1")


async def test_a_card_that_is_sold_beyond_its_size_is_reported_once_and_again_after_it_was_healed(room: Room) -> None:
    await room.add_node(make_cards(mib=(15360,)))
    pods: dict[str, Pod] = {}

    async def reported(name: str) -> list[str]:
        """What is told when somebody else puts one more pod on the card."""
        with capture_logs() as told:
            pods[name] = await room.add_pod(name, 10, metadata={"annotations": {IDX: "0"}}, node="n1")
        return [line["card"] for line in told if line["event"] == "a card is over-committed"]

    assert [await reported(name) for name in "abc"] == [[], ["GPU-n1-0"], []]
    await room.delete_pod(pods["c"])
    assert await reported("d") == []
    for name in "bd":
        await room.delete_pod(pods[name])
    assert room.used() == {0: 10}
    assert await reported("e") == ["GPU-n1-0"]


async def test_who_no_longer_wants_to_know_of_changes_is_not_told(room: Room) -> None:
    told: list[str] = []
    ends = room.plane.changed.subscribe(lambda _: told.append("ends"))
    room.plane.changed.subscribe(lambda _: told.append("stays"))
    await room.add_node()
    assert set(told) == {"ends", "stays"}
    told.clear()
    ends()
    await room.add_pod("p", 3)
    assert set(told) == {"stays"}
