"""Pods that another scheduler has bound before they had a placement get it late, or fail with the reason."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from aliquot.control.leadership.leadership import Leadership
from aliquot.control.placing.late import LatePlacer
from aliquot.control.placing.reservations import Reservations
from aliquot.control.placing.transaction import PlacementTransactions
from aliquot.dialects.gpushare import ASSIGNED, ASSUME_TIME, IDX, POD
from aliquot.dialects.node_reading import SERVES
from aliquot.embedded.api import resources
from aliquot.errors import NoRoom, NotLeading, Refused
from aliquot.ledger import State
from aliquot.model import NodeGpus, Pod
from aliquot.model.records import PLACEMENT, read_placement
from tests.factories import GPU_COUNT, GPU_MEM, container_manifest, make_cards, make_gpu
from tests.fakes import Seen, answer, cut_after, cut_before, held, until
from tests.integration.control.test_audit import audit_of
from tests.integration.control.test_following_the_cluster import RUNNING
from tests.integration.room import Room
from tests.settings import server_config

PATIENCE = 30.0
MODEL = "nvidia.com/gpu.model"
WHOLE_CARDS = {"nvidia.com/gpu": "2"}


class Placer:
    """Late placement of a server that is the only one, with what runs beside it."""

    def __init__(self, room: Room, **settings: Any) -> None:
        client, cluster, clock, plane = room.plane.client, room.plane.cluster, room.plane.clock, room.plane
        chosen = server_config(**{"lease__enabled": False, "late__seconds": PATIENCE} | settings)
        leadership = Leadership(client, clock, chosen, plane.pods.refresh)
        transactions = PlacementTransactions(client, cluster, leadership, clock, chosen.commit)
        events = plane.pod_events
        self._transactions = transactions
        self._late = LatePlacer(client, cluster, transactions, plane.nodes.get, leadership, events, clock, chosen.late)
        self._reservations = Reservations(cluster, leadership, clock, chosen.commit)
        self.reserve = self._reservations.reserve
        self.is_pending = transactions.is_pending

    async def look(self) -> None:
        self._reservations.expire()
        await self._transactions.settle()
        await self._late.look()


def placer_of(room: Room, **settings: Any) -> Placer:
    return Placer(room, **settings)


def patches(room: Room) -> list[Seen]:
    return [seen for seen in room.api.writes() if seen.method == "PATCH" and not seen.path.endswith("/status")]


def status_of(room: Room, pod: Pod) -> Any:
    return room.api_pod(pod)["status"]


async def bound(room: Room, *args: Any, **fields: Any) -> Pod:
    return await room.add_pod(*args, node="n1", **fields)


async def test_a_bound_pod_without_a_placement_gets_it_in_one_patch(room: Room) -> None:
    await room.add_node()
    pod = await bound(room)
    assert room.used() == {}
    await placer_of(room).look()
    await room.in_sync()
    (patch,) = patches(room)
    assert patch.body["metadata"]["uid"] == pod.metadata.uid
    written = room.api_pod(pod)["metadata"]["annotations"]
    assert set(written) >= {PLACEMENT, IDX, POD, ASSIGNED, ASSUME_TIME}
    assert read_placement(written[PLACEMENT]).node == "n1"
    assert room.used() == {0: 3}
    assert room.entries()[pod.metadata.uid].state is State.BOUND


UNREADABLE: list[Any] = [
    pytest.param({GPU_MEM: "15"}, {ASSIGNED: "true"}, id="gpushare: the mark alone"),
    pytest.param({GPU_MEM: "15"}, {IDX: "99"}, id="gpushare: an unknown card"),
    pytest.param({GPU_MEM: "15"}, {IDX: "99", ASSIGNED: "true"}, id="gpushare: both"),
    pytest.param(
        {"tencent.com/vcuda-core": "100"},
        {"tencent.com/predicate-gpu-idx-0": "99", "tencent.com/gpu-assigned": "true"},
        id="tencent",
    ),
    pytest.param(
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "15360"},
        {"hami.io/vgpu-devices-allocated": "junk", "hami.io/bind-phase": "success"},
        id="hami",
    ),
]


@pytest.mark.parametrize("is_free", [True, False], ids=["a free card", "no free card"])
@pytest.mark.parametrize(("limits", "annotations"), UNREADABLE)
async def test_a_pod_that_never_ran_is_placed_or_failed_whatever_a_user_wrote_on_it(
    room: Room, limits: dict[str, str], annotations: dict[str, str], *, is_free: bool
) -> None:
    """A pod that its user bound to a node does not block the cards of others there, and does not wait for good."""
    await room.add_node(make_cards(mib=[15 * 1024]), capacity={**limits, GPU_MEM: "15"})
    if not is_free:
        await room.commit(await room.add_pod("tenant", 3), "n1")
    containers = [container_manifest(gpu_mem=None) | {"resources": {"limits": limits}}]
    pod = await bound(room, "forged", containers=containers, metadata={"annotations": annotations})
    assert room.used() == ({} if is_free else {0: 3}), "it holds nothing yet"
    placer = placer_of(room)
    for _ in range(2):
        await placer.look()
        await room.in_sync()
        await room.clock.move(PATIENCE)
    assert (PLACEMENT in room.api_pod(pod)["metadata"]["annotations"]) is is_free
    assert (status_of(room, pod).get("reason") == "AliquotNoRoom") is not is_free
    assert room.used() == {0: 15 if is_free else 3}


async def test_an_event_says_that_a_pod_was_placed_late(room: Room) -> None:
    cards = await room.add_node()
    pod = await bound(room)
    await placer_of(room).look()
    (event,) = [seen.body for seen in room.api.writes() if seen.path.endswith("/events")]
    assert (event["type"], event["reason"]) == ("Normal", "PlacedLate")
    assert event["involvedObject"]["uid"] == pod.metadata.uid
    assert "n1" in event["message"]
    assert cards.gpus[0].uuid in event["message"]


async def test_a_pod_is_placed_once(room: Room) -> None:
    await room.add_node()
    await bound(room)
    placer = placer_of(room)
    for _ in range(3):
        await placer.look()
        await room.in_sync()
    await placer_of(room).look()
    assert len(patches(room)) == 1


LEFT_ALONE: list[Any] = [
    pytest.param({"metadata": {"annotations": {IDX: "1"}}}, {1: 3}, id="an original has placed it: adopted"),
    pytest.param({"gpu_mem": None}, {}, id="no GPU"),
    pytest.param({"gpu_mem": 0}, {}, id="a demand that cannot be"),
    pytest.param(
        {"containers": [container_manifest(gpu_mem=None) | {"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        {0: 15},
        id="a whole card from NVIDIA's plugin: counted, not written",
    ),
]


@pytest.mark.parametrize(("fields", "used"), LEFT_ALONE)
async def test_nothing_is_written_on_a_pod_that_is_not_ours_to_place(
    room: Room, fields: dict[str, Any], used: dict[int, int]
) -> None:
    await room.add_node(capacity=WHOLE_CARDS)
    await bound(room, **fields)
    await placer_of(room).look()
    assert patches(room) == []
    assert room.used() == used


async def test_a_pod_that_runs_already_is_not_placed_late(room: Room) -> None:
    """It has a card, whoever gave it; which one cannot be told, so all of them are charged."""
    await room.add_node()
    pod = await bound(room)
    await room.report(pod, phase="Running", containerStatuses=RUNNING)
    await placer_of(room).look()
    assert patches(room) == []
    assert room.used() == {0: 3, 1: 3}


async def test_nothing_is_written_on_a_node_without_our_inventory_and_that_is_said_once(room: Room) -> None:
    await room.add_plain_node("n1", {GPU_MEM: "30", GPU_COUNT: "2"})
    await bound(room)
    placer = placer_of(room)
    with capture_logs() as told:
        await placer.look()
        await placer.look()
    said = [line for line in told if line["event"] == "not placing a bound pod"]
    assert [line["why"] for line in said] == [
        "its node has no inventory from our agent: another agent hands out its cards"
    ]
    assert patches(room) == []


@pytest.mark.parametrize("served", ["nvidia", "hami"])
async def test_whole_cards_are_named_where_our_agent_hands_them_over(room: Room, served: str) -> None:
    await room.add_node(capacity=WHOLE_CARDS)
    room.api.registry.rewrite(resources.NODES, "", "n1", lambda node: _labelled(node, {f"{SERVES}{served}": "true"}))
    await room.in_sync()
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = await bound(room, containers=[container_manifest(gpu_mem=None) | limits])
    assert room.used() == {0: 15}
    await placer_of(room).look()
    await room.in_sync()
    assert read_placement(room.api_pod(pod)["metadata"]["annotations"][PLACEMENT]).dialect == "nvidia"
    assert room.used() == {0: 15}
    assert room.plane.cluster.unplaced == {}


@pytest.mark.parametrize("is_free", [True, False], ids=["free", "freed-later"])
async def test_whole_cards_are_those_of_the_model_that_is_wished(room: Room, *, is_free: bool) -> None:
    """Until they are named, any empty cards of the node count as the pod's, but it gets none of another model."""
    cards = NodeGpus("n1", (make_gpu(0), make_gpu(1, model="A10")), 1024)
    await room.add_node(cards, capacity=WHOLE_CARDS)
    room.api.registry.rewrite(resources.NODES, "", "n1", lambda node: _labelled(node, {f"{SERVES}nvidia": "true"}))
    await room.in_sync()
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    wish = {"containers": [container_manifest(gpu_mem=None) | limits], "metadata": {"annotations": {MODEL: "A10"}}}
    placer = placer_of(room)
    if not is_free:
        before = await bound(room, "before", **wish)
        await placer.look()
    pod = await bound(room, "after", **wish)
    await placer.look()
    if not is_free:
        assert PLACEMENT not in room.api_pod(pod)["metadata"]["annotations"]
        await room.delete_pod(before)
        await placer.look()
    await room.in_sync()
    placement = read_placement(room.api_pod(pod)["metadata"]["annotations"][PLACEMENT])
    assert [part.uuid for part in placement.slices()] == [cards.gpus[1].uuid]
    assert room.used() == {1: 15}


NO_ROOM_FOR_WHOLE_CARDS: list[Any] = [
    pytest.param({f"{SERVES}nvidia": "true"}, WHOLE_CARDS, id="our agent waits for a placement"),
    pytest.param({f"{SERVES}gpushare": "true"}, {}, id="no plugin has registered whole cards"),
    pytest.param({f"{SERVES}hami": "true"}, WHOLE_CARDS, id="so it does where it serves hami"),
]


@pytest.mark.parametrize(("labels", "capacity"), NO_ROOM_FOR_WHOLE_CARDS)
async def test_a_whole_card_that_nobody_has_given_takes_no_room(
    room: Room, labels: dict[str, str], capacity: dict[str, str]
) -> None:
    """A container of another pod runs on each card, so none is free as a whole; what is left of them is free."""
    await room.add_node(capacity=capacity)
    for name in ("first", "second"):
        await room.commit(await room.add_pod(name, 8), "n1")
    room.api.registry.rewrite(resources.NODES, "", "n1", lambda node: _labelled(node, labels))
    await room.in_sync()
    pod = await bound(room, **WHOLE_CARD)
    await placer_of(room).look()
    assert room.used() == {0: 8, 1: 8}
    assert room.plane.cluster.unplaced.keys() == {pod.metadata.uid}
    assert await audit_of(room).look() == []


async def test_a_whole_card_that_was_in_doubt_is_free_when_our_agent_shows_its_cards(room: Room) -> None:
    """Without an inventory the pod may have got any card; then it turns out that our agent gives it none."""
    labels = {f"{SERVES}nvidia": "true"}
    await room.add_plain_node("n1", {"nvidia.com/gpu": "1"})
    room.api.registry.rewrite(resources.NODES, "", "n1", lambda node: _labelled(node, labels))
    await bound(room, "first", **WHOLE_CARD)
    await bound(room, "second", **WHOLE_CARD)
    assert len(room.entries()) == 2
    cards = make_cards(mib=[15360])
    await room.change_node(cards)
    assert len(room.entries()) == 1


WHOLE_CARD = {"containers": [container_manifest(gpu_mem=None) | {"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}


async def a_whole_card_that_waits_for_its_model(room: Room, placer: Placer) -> tuple[Pod, NodeGpus]:
    """It counts on the T4 while the A10 that it wishes is taken, and the A10 has come free by now."""
    cards = NodeGpus("n1", (make_gpu(0), make_gpu(1, model="A10")), 1024)
    await room.add_node(cards, capacity=WHOLE_CARDS)
    served = {f"{SERVES}nvidia": "true", f"{SERVES}gpushare": "true"}
    room.api.registry.rewrite(resources.NODES, "", "n1", lambda node: _labelled(node, served))
    wish = WHOLE_CARD | {"metadata": {"annotations": {MODEL: "A10"}}}
    before = await bound(room, "before", **wish)
    await placer.look()
    pod = await bound(room, "after", **wish)
    await placer.look()
    assert room.used() == {0: 15, 1: 15}
    await room.delete_pod(before)
    assert room.used() == {0: 15}
    return pod, cards


async def test_a_card_that_is_about_to_be_written_on_a_pod_is_the_one_that_it_is_charged_for(room: Room) -> None:
    placer = placer_of(room)
    pod, cards = await a_whole_card_that_waits_for_its_model(room, placer)
    arrived, release = asyncio.Event(), asyncio.Event()
    room.api.script("PATCH", "/pods/after$", held(arrived, release))
    placing = asyncio.create_task(placer.look())
    await arrived.wait()
    assert room.used() == {1: 15}
    await room.commit(await room.add_pod("other", 9), "n1")
    release.set()
    await placing
    await room.in_sync()
    placement = read_placement(room.api_pod(pod)["metadata"]["annotations"][PLACEMENT])
    assert [part.uuid for part in placement.slices()] == [cards.gpus[1].uuid]
    assert room.used() == {0: 9, 1: 15}


@pytest.mark.parametrize(
    ("fault", "is_open"), [pytest.param(answer(403), False, id="refused"), pytest.param(cut_before, True, id="cut")]
)
async def test_a_bound_pod_keeps_the_card_of_a_patch_that_failed(room: Room, fault: Any, *, is_open: bool) -> None:
    """Any card of the node is as good as the other while nobody names it; after a patch without an answer no other."""
    placer = placer_of(room)
    pod, _ = await a_whole_card_that_waits_for_its_model(room, placer)
    room.api.script("PATCH", "/pods/after$", fault)
    await placer.look()
    assert room.used() == {1: 15}
    assert placer.is_pending(pod.metadata.uid, "n1") is is_open
    await room.annotate(pod, some="change")
    assert room.used() == {1: 15}
    await placer.look()
    await room.in_sync()
    assert room.used() == {1: 15}
    assert PLACEMENT in room.api_pod(pod)["metadata"]["annotations"]


async def test_a_binding_that_is_refused_leaves_its_claim_to_late_placement(room: Room) -> None:
    """Somebody else binds the pod while our Binding is on its way; late placement writes our claim onto it."""
    await room.add_node(make_cards(mib=(15360,)))
    pod = await room.add_pod("p", 10)
    binding, refuse = asyncio.Event(), asyncio.Event()
    room.api.script("POST", "/binding$", held(binding, refuse))
    commit = asyncio.create_task(room.commit(pod, "n1"))
    await binding.wait()
    await room.plane.client.bind(_binding(pod), timeout=20)
    await room.in_sync()
    await room.plane.late.look()
    assert patches(room) == [], "one transaction of a pod at a time"
    refuse.set()
    with pytest.raises(Refused):
        await commit
    assert room.used() == {0: 10}
    with pytest.raises(NoRoom):
        await room.commit(await room.add_pod("other", 10), "n1")
    await room.plane.late.look()
    await room.in_sync()
    assert len(patches(room)) == 1
    assert room.used() == {0: 10}


def _annotated(obj: Any, annotations: dict[str, str]) -> Any:
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def _labelled(node: Any, labels: dict[str, str]) -> Any:
    return {**node, "metadata": {**node["metadata"], "labels": labels}}


async def test_a_pod_bound_before_the_node_s_inventory_is_placed_when_it_comes(room: Room) -> None:
    await room.add_pod(node="n1")
    placer = placer_of(room)
    await placer.look()
    await room.add_node()
    await placer.look()
    assert len(patches(room)) == 1


async def test_only_who_may_commit_places_late(room: Room) -> None:
    await room.add_node()
    pod = await bound(room)
    follower = placer_of(room, lease__enabled=True)
    observer = placer_of(room, lease__enabled=True, mode="observe")
    for placer in (follower, observer):
        await placer.look()
        with pytest.raises(NotLeading):
            placer.reserve(pod, "n1", 5)
    assert patches(room) == []
    assert room.used() == {}


# -- parts that a filter keeps


async def test_what_was_kept_for_a_pod_is_what_it_gets(room: Room) -> None:
    await room.add_node()
    await room.commit(await room.add_pod("first", 1), "n1")
    pod = await room.add_pod("p", 15)
    placer = placer_of(room)
    kept = placer.reserve(pod, "n1", 5)
    assert {part.index for part in kept.slices()} == {1}
    with pytest.raises(NoRoom):
        await room.commit(await room.add_pod("other", 15), "n1")
    await room.plane.client.bind(_binding(pod), timeout=20)
    await room.in_sync()
    await room.clock.move(3)
    await placer.look()
    assert room.used() == {0: 1, 1: 15}


async def test_what_was_kept_is_given_back_in_time(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod("p", 15)
    placer = placer_of(room)
    placer.reserve(pod, "n1", 5)
    await room.clock.move(4)
    placer.reserve(pod, "n1", 5)
    await room.clock.move(4)
    await placer.look()
    assert room.used() == {0: 15}
    await room.clock.move(2)
    await placer.look()
    assert room.used() == {}


async def test_what_was_kept_moves_with_the_pod_s_next_node(room: Room) -> None:
    await room.add_node()
    await room.add_node(make_cards("n2"))
    pod = await room.add_pod()
    placer = placer_of(room)
    placer.reserve(pod, "n1", 5)
    placer.reserve(pod, "n2", 5)
    assert (room.used("n1"), room.used("n2")) == ({}, {0: 3})
    await bound(room, "other")
    await room.plane.client.bind(_binding(pod), timeout=20)
    await room.in_sync()
    assert room.used("n2") == {}


async def test_a_commit_makes_what_was_kept_the_pod_s_own(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod()
    placer_of(room).reserve(pod, "n1", 5)
    await room.commit(pod, "n1")
    await room.clock.move(60)
    await placer_of(room).look()
    assert room.used() == {0: 3}


@pytest.mark.parametrize("fault", [pytest.param(answer(403), id="refused"), pytest.param(cut_before, id="no answer")])
async def test_a_commit_that_fails_treats_what_was_kept_as_its_own_claim(room: Room, fault: Any) -> None:
    await room.add_node()
    pod = await room.add_pod()
    placer_of(room).reserve(pod, "n1", 5)
    room.api.script("POST", "/binding$", fault)
    with pytest.raises(Exception, match=r".*"):
        await room.commit(pod, "n1")
    await room.clock.move(60)
    await placer_of(room).look()
    assert room.used() == ({0: 3} if fault is cut_before else {})


def _binding(pod: Pod) -> dict[str, Any]:
    meta = pod.metadata
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
        "target": {"kind": "Node", "name": "n1"},
    }


# -- no room


async def test_a_pod_that_lost_the_race_fails_with_what_was_missing(room: Room) -> None:
    await room.add_node(make_cards(mib=(15360,)))
    await room.commit(await room.add_pod("first", 10), "n1")
    pod = await bound(room, "second", 10)
    placer = placer_of(room)
    await placer.look()
    assert status_of(room, pod)["phase"] == "Pending"
    await room.clock.move(PATIENCE)
    await placer.look()
    await room.in_sync()
    status = status_of(room, pod)
    assert (status["phase"], status["reason"]) == ("Failed", "AliquotNoRoom")
    assert "has 5120 MiB" in status["message"]
    (event,) = [held.obj for held in room.api.store.snapshot("events")]
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "AliquotNoRoom", status["message"])
    assert room.used() == {0: 10}
    await placer.look()
    assert len(list(room.api.store.snapshot("events"))) == 1


async def test_a_pod_that_has_begun_meanwhile_is_not_failed(room: Room) -> None:
    """The server's account may not fail it (admission policy `aliquot-server-reach`)."""
    await room.add_node(make_cards(mib=(15360,)))
    await room.commit(await room.add_pod("first", 10), "n1")
    pod = await bound(room, "second", 10)
    placer = placer_of(room)
    await placer.look()
    await room.report(pod, phase="Running")
    await room.clock.move(PATIENCE)
    await placer.look()
    assert status_of(room, pod)["phase"] == "Running"


async def test_a_pod_whose_room_comes_free_in_time_is_placed(room: Room) -> None:
    await room.add_node(make_cards(mib=(15360,)))
    first = await room.add_pod("first", 10)
    await room.commit(first, "n1")
    await bound(room, "second", 10)
    placer = placer_of(room)
    await placer.look()
    await room.clock.move(PATIENCE - 1)
    await room.delete_pod(first)
    await placer.look()
    assert room.used() == {0: 10}


async def test_a_pod_that_was_placed_by_somebody_else_meanwhile_is_not_failed(room: Room) -> None:
    """We have not seen it yet: the API server knows better."""
    await room.add_node(make_cards(mib=(15360,)))
    await room.commit(await room.add_pod("first", 10), "n1")
    pod = await bound(room, "second", 10)
    placer = placer_of(room)
    await placer.look()
    await room.clock.move(PATIENCE)
    room.api.registry.rewrite(resources.PODS, "default", "second", lambda obj: _annotated(obj, {IDX: "0"}))
    await placer.look()
    assert status_of(room, pod)["phase"] == "Pending"


# -- answers


@pytest.mark.parametrize(
    ("fault", "writes"), [pytest.param(cut_before, 2, id="not made"), pytest.param(cut_after, 1, id="made")]
)
async def test_a_patch_without_an_answer_keeps_its_claim_until_the_pod_is_seen(
    room: Room, fault: Any, writes: int
) -> None:
    await room.add_node()
    pod = await bound(room, "p", 15)
    placer = placer_of(room)
    room.api.script("PATCH", "/pods/p$", fault)
    await placer.look()
    assert room.used() == {0: 15}
    assert placer.is_pending(pod.metadata.uid, "n1") or fault is cut_after
    await room.in_sync()
    await placer.look()
    await room.in_sync()
    assert len(patches(room)) == writes
    assert room.entries()[pod.metadata.uid].state is State.BOUND
    assert PLACEMENT in room.api_pod(pod)["metadata"]["annotations"]
    await placer.look()
    assert not placer.is_pending(pod.metadata.uid, "n1")


async def test_a_patch_that_is_refused_gives_its_claim_back_and_is_tried_again(room: Room) -> None:
    await room.add_node()
    await bound(room)
    placer = placer_of(room)
    room.api.script("PATCH", "/pods/p$", answer(403))
    await placer.look()
    assert room.used() == {}
    await placer.look()
    assert room.used() == {0: 3}


async def test_a_patch_that_is_refused_after_one_without_an_answer_keeps_its_claim(room: Room) -> None:
    await room.add_node()
    await bound(room)
    placer = placer_of(room)
    room.api.script("PATCH", "/pods/p$", cut_before, answer(403))
    await placer.look()
    await placer.look()
    assert room.used() == {0: 3}


async def test_a_pod_that_goes_while_it_is_placed_holds_nothing(room: Room) -> None:
    await room.add_node()
    pod = await bound(room)
    placer = placer_of(room)
    room.api.script("PATCH", "/pods/p$", cut_before)
    await placer.look()
    await room.delete_pod(pod)
    await placer.look()
    assert room.used() == {}
    assert not placer.is_pending(pod.metadata.uid, "n1")


async def test_a_late_placement_under_way_is_no_drift(room: Room) -> None:
    await room.add_node()
    await bound(room)
    placer = placer_of(room)
    room.api.script("PATCH", "/pods/p$", cut_before)
    await placer.look()
    assert await audit_of(room, placer.is_pending).look() == []
    assert room.used() == {0: 3}


async def test_the_control_plane_places_late_by_itself(room: Room) -> None:
    await room.add_node()
    pod = await bound(room)
    await until(lambda: PLACEMENT in room.api_pod(pod)["metadata"].get("annotations", {}), passing=room.clock)
    await room.in_sync()
    assert room.used() == {0: 3}
