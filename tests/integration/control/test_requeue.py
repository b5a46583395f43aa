"""A pod that was refused is woken when there is room for it: exactly that pod, once."""

import asyncio
from typing import Any

import pytest

from aliquot.control.leadership.leadership import Leadership
from aliquot.control.requeue.requeuer import Requeuer
from aliquot.control.state.events import Marked
from aliquot.embedded.api import resources
from aliquot.model import Pod
from aliquot.model.admission import WOKEN
from tests.factories import make_cards, make_pod
from tests.fakes import answer, cut_after, held, until
from tests.integration.control.test_quota_map import quota_of, write_quota
from tests.integration.room import Room
from tests.settings import server_config

GRACE = 1.0
NOMINATION = 10.0


class Waking:
    """A cluster whose one node has two cards of 15 units, and refused pods."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.requeuer = room.plane.requeuer

    async def refused(self, name: str = "p", units: int = 15, **fields: Any) -> Pod:
        pod = await self.room.add_pod(name, units, **fields)
        self.requeuer.refused(pod)
        return pod

    async def full(self, *names: str) -> list[Pod]:
        """A node on which these pods hold a card each."""
        if self.room.plane.nodes.get("n1") is None:
            await self.room.add_node()
        pods = [await self.room.add_pod(name, 15) for name in names]
        for pod in pods:
            await self.room.commit(pod, "n1")
        await self.room.in_sync()
        return pods

    async def look(self, seconds: float = 0.0) -> None:
        """What the loop does after so much time."""
        await self.room.clock.move(seconds)
        await self.requeuer.look()
        await until(lambda: not self.room.api.busy, "the API server has nothing to do")
        await self.room.in_sync()

    def woken(self) -> list[str]:
        """The pods that were written on, one for each write."""
        writes = [seen for seen in self.room.api.writes() if WOKEN in str(seen.body)]
        return [seen.path.rpartition("/")[2] for seen in writes]


@pytest.fixture
async def waking(room: Room) -> Waking:
    return Waking(room)


# -- who is woken


def scheduled_false(message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"conditions": [condition]}


async def test_a_new_leader_wakes_those_whom_another_server_refused(waking: Waking, room: Room) -> None:
    await room.add_node()
    words = "0/1 nodes are available: 1 Insufficient GPU Memory in one device. preemption: not eligible"
    for name, message in (("ours", words), ("others", "0/1 nodes are available: 1 node(s) had untolerated taint(s)")):
        await room.report(await room.add_pod(name, 15), **scheduled_false(message))
    await room.add_pod("new", 15)
    waking.requeuer.inherit(room.plane.pods.all())
    await waking.look(GRACE)
    assert waking.woken() == ["ours"]
    waking.requeuer.inherit(room.plane.pods.all())
    await waking.look(GRACE)
    assert waking.woken() == ["ours"], "once"


@pytest.mark.embedded_only("a real one takes no priority without its class")
async def test_a_raised_quota_wakes_as_many_as_it_has_room_for_best_first(waking: Waking, room: Room) -> None:
    await room.add_node(make_cards(mib=(15360,) * 8))
    await write_quota(room, quota_of(T4=0))
    for number in range(6):
        await waking.refused(f"p{number}", priority=10 if number == 4 else 0)
    await write_quota(room, quota_of(T4=3))
    await until(lambda: len(waking.woken()) == 3)
    await waking.look()
    assert sorted(waking.woken()) == ["p0", "p1", "p4"], "by priority, then by age"


async def test_each_of_fifty_is_written_on_once_and_with_a_time(waking: Waking, room: Room) -> None:
    await room.add_node(make_cards(mib=(15360,) * 8))
    await write_quota(room, quota_of(T4=0))
    pods = [await waking.refused(f"p{number}", 1) for number in range(50)]
    await write_quota(room, quota_of(T4=8))
    await until(lambda: len(waking.woken()) == 50)
    await waking.look(GRACE)
    assert sorted(waking.woken()) == sorted(pod.metadata.name for pod in pods)
    written = room.api_pod(pods[0])["metadata"]["annotations"][WOKEN]
    assert written.endswith("Z")
    assert "." in written


async def test_a_pod_that_fits_nowhere_is_left_alone(waking: Waking, room: Room) -> None:
    await room.add_node()
    await write_quota(room, quota_of(T4=0))
    await waking.refused("large", 16)
    await write_quota(room, quota_of(T4=2))
    await waking.look(GRACE)
    assert waking.woken() == []


async def test_a_pod_of_which_no_endpoint_told_is_left_alone(waking: Waking, room: Room) -> None:
    (first,) = await waking.full("first")
    await room.add_pod("stranger", 15)
    await waking.refused("known", 15)
    await room.delete_pod(first)
    await waking.look(GRACE)
    await until(lambda: waking.woken() == ["known"])


CLOSED: list[Any] = [
    pytest.param({"nodeSelector": {"pool": "other"}}, {}, id="the pod selects other nodes"),
    pytest.param({}, {"spec": {"unschedulable": True}}, id="the node is cordoned"),
    pytest.param({}, {"ready": False}, id="the node is not ready"),
]


@pytest.mark.parametrize(("pod", "node"), CLOSED)
async def test_room_on_a_node_that_is_closed_to_the_pod_is_none(
    waking: Waking, room: Room, pod: dict[str, Any], node: dict[str, Any]
) -> None:
    await room.add_node(**node)
    await write_quota(room, quota_of(T4=0))
    await waking.refused(**pod)
    await write_quota(room, quota_of(T4=2))
    await waking.look(GRACE)
    assert waking.woken() == []


@pytest.mark.parametrize("becomes", ["bound", "gone", "ended"])
async def test_a_pod_that_waits_no_more_is_not_woken(waking: Waking, room: Room, becomes: str) -> None:
    await waking.full("first", "second")
    pod = await waking.refused()
    match becomes:
        case "bound":
            await room.client.bind(binding_of(pod), timeout=20)
        case "gone":
            await room.delete_pod(pod)
        case "ended":
            await room.report(pod, phase="Failed")
    await room.in_sync()
    assert waking.requeuer.waiting == 0


# -- what makes room


async def test_a_card_that_is_healthy_again_wakes(waking: Waking, room: Room) -> None:
    room.plane.cluster.apply(Marked("n1", [0, 1]))
    await room.add_node()
    await waking.refused()
    room.plane.cluster.apply(Marked("n1", [0]))
    await until(lambda: waking.woken() == ["p"], "without any time going by")


async def test_a_claim_that_runs_out_wakes(waking: Waking, room: Room) -> None:
    await waking.full("first")
    held = await room.add_pod("held", 15)
    room.plane.reservations.reserve(held, "n1", 5.0)
    await waking.refused()
    await room.clock.move(5.0)
    await until(lambda: waking.woken() == ["p"], passing=room.clock)


async def test_room_in_a_namespaces_quota_may_be_on_any_node(waking: Waking, room: Room) -> None:
    await room.add_node(make_cards("n1", mib=(15360,)))
    await room.add_node(make_cards("n2", mib=(15360,)))
    await write_quota(room, quota_of(T4=1))
    first = await room.add_pod("first", 15)
    await room.commit(first, "n1")
    await waking.refused(nodeSelector={"kubernetes.io/hostname": "n2"})
    room.api.registry.rewrite(resources.NODES, "", "n2", lambda node: _labelled(node, {"kubernetes.io/hostname": "n2"}))
    await room.in_sync()
    await waking.look(GRACE)
    assert waking.woken() == []
    await room.delete_pod(first)
    await waking.look(GRACE)
    await until(lambda: waking.woken() == ["p"])


# -- what kube-scheduler hears of


async def test_room_of_which_kube_scheduler_hears_is_left_to_it_for_a_moment(waking: Waking, room: Room) -> None:
    (first, _) = await waking.full("first", "second")
    await waking.refused()
    await room.delete_pod(first)
    await waking.look()
    assert waking.woken() == []
    await waking.look(GRACE)
    await until(lambda: waking.woken() == ["p"], "it has not asked")


async def test_a_pod_that_was_asked_for_since_needs_no_waking(waking: Waking, room: Room) -> None:
    (first, _) = await waking.full("first", "second")
    pod = await waking.refused()
    await room.delete_pod(first)
    waking.requeuer.refused(pod)
    await waking.look(GRACE)
    assert waking.woken() == []


async def test_a_pod_that_passed_needs_no_waking(waking: Waking, room: Room) -> None:
    (first, _) = await waking.full("first", "second")
    pod = await waking.refused()
    await room.delete_pod(first)
    waking.requeuer.passed(pod)
    await waking.look(GRACE)
    assert waking.woken() == []


async def test_an_answer_from_before_our_books_changed_does_not_count(waking: Waking, room: Room) -> None:
    """kube-scheduler may hear of the end of a pod before we do, and be refused once more."""
    (first, _) = await waking.full("first", "second")
    pod = await waking.refused()
    waking.requeuer.refused(pod)
    await room.delete_pod(first)
    await waking.look(GRACE)
    await until(lambda: waking.woken() == ["p"])


# -- once


async def test_a_pod_is_woken_once_for_one_opening_whatever_becomes_of_it(waking: Waking, room: Room) -> None:
    """kube-scheduler's own filters may keep it away from the room."""
    await room.add_node()
    await write_quota(room, quota_of(T4=0))
    pod = await waking.refused()
    await write_quota(room, quota_of(T4=1))
    await until(lambda: waking.woken() == ["p"])
    for _ in range(5):
        waking.requeuer.refused(pod)
        await waking.look(NOMINATION)
    await until(lambda: waking.woken() == ["p"])
    await write_quota(room, quota_of(T4=2))
    await until(lambda: waking.woken() == ["p", "p"], "there is room anew")


async def test_a_woken_pod_of_which_nobody_asks_is_not_woken_again(waking: Waking, room: Room) -> None:
    await room.add_node()
    await write_quota(room, quota_of(T4=0))
    await waking.refused()
    for cards in (1, 2):
        await write_quota(room, quota_of(T4=cards))
        await waking.look(NOMINATION)
    await write_quota(room, quota_of(T4=3))
    await waking.look(NOMINATION)
    await until(lambda: waking.woken() == ["p"])


async def test_room_that_a_woken_pod_cannot_use_goes_to_the_next_in_line(waking: Waking, room: Room) -> None:
    """Each of them once: they must not wake one another in turn for ever."""
    await room.add_node(make_cards(mib=(15360,)))
    await write_quota(room, quota_of(T4=0))
    pods = {name: await waking.refused(name) for name in ("p0", "p1", "p2")}
    await write_quota(room, quota_of(T4=1))
    for count in (1, 2, 3):
        await until(lambda: len(waking.woken()) == count)  # noqa: B023
        waking.requeuer.refused(pods[waking.woken()[-1]])
    for _ in range(3):
        await waking.look(NOMINATION)
    await until(lambda: waking.woken() == ["p0", "p1", "p2"])


async def test_a_part_nominated_for_a_woken_pod_wakes_no_other(waking: Waking, room: Room) -> None:
    await room.add_node(make_cards(mib=(15360,)))
    await write_quota(room, quota_of(T4=0))
    for name in ("p0", "p1"):
        await waking.refused(name)
    await write_quota(room, quota_of(T4=1))
    await until(lambda: waking.woken() == ["p0"])
    await write_quota(room, quota_of(T4=2))
    await waking.look(NOMINATION / 2)
    assert waking.woken() == ["p0"]
    await waking.look(NOMINATION)
    await until(lambda: waking.woken() == ["p0", "p1"], "nobody asked for the first")


async def test_a_woken_pod_that_is_bound_leaves_what_is_left_to_others(waking: Waking, room: Room) -> None:
    await room.add_node(make_cards(mib=(15360,) * 2))
    await write_quota(room, quota_of(T4=0))
    first, _ = [await waking.refused(name) for name in ("p0", "p1")]
    await write_quota(room, quota_of(T4=1))
    await until(lambda: waking.woken() == ["p0"])
    waking.requeuer.passed(first)
    await room.commit(first, "n1")
    await write_quota(room, quota_of(T4=2))
    await until(lambda: waking.woken() == ["p0", "p1"])


async def test_trying_out_leaves_no_trace_in_the_books(waking: Waking, room: Room) -> None:
    await room.add_node()
    await write_quota(room, quota_of(T4=0))
    before = room.plane.cluster.snapshot()
    await waking.refused()
    await write_quota(room, quota_of(T4=2))
    await until(lambda: waking.woken() == ["p"])
    assert room.used() == {}
    assert room.plane.cluster.snapshot().entries == before.entries
    assert room.plane.cluster.totals.wrong_counts("n1") == []


# -- pace and memory


async def test_more_than_some_at_once_are_woken_at_a_pace(waking: Waking, room: Room) -> None:
    await room.add_node(make_cards(mib=(15360,) * 8))
    await write_quota(room, quota_of(T4=0))
    for number in range(80):
        waking.requeuer.refused(await room.add_pod(f"p{number}", 1))
    await write_quota(room, quota_of(T4=8))
    await until(lambda: len(waking.woken()) == 64)
    await waking.look()
    assert len(waking.woken()) == 64
    await waking.look(0.25)
    assert len(waking.woken()) == 72
    await until(lambda: len(waking.woken()) == 80, passing=room.clock)


async def test_the_pods_that_were_refused_longest_ago_are_forgotten_first(waking: Waking) -> None:
    for number in range(20_001):
        waking.requeuer.refused(make_pod(f"p{number}", namespace=f"n{number % 20}"))
    assert waking.requeuer.waiting == 20_000


async def test_a_pod_that_went_before_its_refusal_was_told_is_forgotten(waking: Waking) -> None:
    waking.requeuer.refused(make_pod("gone"))
    await waking.look(61.0)
    assert waking.requeuer.waiting == 1
    await waking.look(61.0)
    assert waking.requeuer.waiting == 0


# -- answers

ANSWERS: list[Any] = [
    pytest.param(answer(429), 2, id="too many requests: again"),
    pytest.param(answer(403), 1, id="forbidden: not again"),
    pytest.param(cut_after, 1, id="no answer: it may have been made"),
]


@pytest.mark.parametrize(("fault", "writes"), ANSWERS)
async def test_a_write_is_made_again_only_if_it_was_not_made(
    waking: Waking, room: Room, fault: Any, writes: int
) -> None:
    await room.add_node()
    await write_quota(room, quota_of(T4=0))
    await waking.refused()
    room.api.script("PATCH", "/pods/p$", fault)
    await write_quota(room, quota_of(T4=1))
    await until(waking.woken)
    for _ in range(3):
        await waking.look(2.0)
    assert len(waking.woken()) == writes


async def test_a_write_that_is_never_taken_is_given_up(waking: Waking, room: Room) -> None:
    await room.add_node()
    await write_quota(room, quota_of(T4=0))
    await waking.refused()
    room.api.script("PATCH", "/pods/p$", *[answer(429)] * 9)
    await write_quota(room, quota_of(T4=1))
    for _ in range(9):
        await waking.look(2.0)
    assert len(waking.woken()) == 3


async def test_a_pod_of_the_same_name_is_not_the_one_that_was_refused(waking: Waking, room: Room) -> None:
    await room.add_node()
    await write_quota(room, quota_of(T4=0))
    await room.add_pod("p")
    waking.requeuer.refused(make_pod("p"))
    await write_quota(room, quota_of(T4=1))
    await until(lambda: waking.requeuer.waiting == 0)
    (pod,) = room.plane.pods.all()
    assert WOKEN not in pod.metadata.annotations


async def test_a_pod_whose_binding_names_its_version_is_not_written_on_when_it_is_about_to_be_bound(
    waking: Waking, room: Room
) -> None:
    arrived, release = asyncio.Event(), asyncio.Event()
    await room.add_node(make_cards(mib=(15360,) * 9))
    await write_quota(room, quota_of(T4=0))
    whole = [{"name": "main", "image": "registry.example/app:1", "resources": {"limits": {"aliquot.io/gpu": "1"}}}]
    pods = [await waking.refused(f"p{number}", containers=whole) for number in range(9)]
    room.api.script("PATCH", "/pods/p[0-7]$", *[held(arrived, release)] * 8)
    await write_quota(room, quota_of(T4=9))
    await until(lambda: len(waking.woken()) == 8, "no more at once")
    waking.requeuer.passed(pods[8])
    release.set()
    await waking.look()
    assert len(waking.woken()) == 8


@pytest.mark.parametrize(
    "settings", [pytest.param({"mode": "observe"}, id="observes"), pytest.param({"lease__enabled": True}, id="follows")]
)
async def test_only_who_may_commit_writes(waking: Waking, room: Room, settings: dict[str, Any]) -> None:
    plane = room.plane
    leadership = Leadership(plane.client, plane.clock, server_config(**settings), plane.pods.refresh)
    other = Requeuer(plane.client, plane.cluster, plane.nodes.get, plane.pods.with_uid, leadership, plane.clock)
    plane.cluster.freed.subscribe(other.opened)
    await room.add_node()
    await write_quota(room, quota_of(T4=0))
    other.refused(await room.add_pod())
    await write_quota(room, quota_of(T4=1))
    await other.look()
    assert waking.woken() == []


def binding_of(pod: Pod) -> dict[str, Any]:
    meta = pod.metadata
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
        "target": {"kind": "Node", "name": "n1"},
    }


def _labelled(node: Any, labels: dict[str, str]) -> Any:
    return {**node, "metadata": {**node["metadata"], "labels": labels}}
