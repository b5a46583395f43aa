"""The leader writes on a waiting GPU pod why it waits: once per verdict, and no more when the pod is bound."""

from typing import Any

import pytest

from aliquot.control.waiting.reasons import WaitingReasons
from aliquot.control.waiting.schedule import Told
from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.model import Pod
from aliquot.model.admission import PLACEABLE
from aliquot.model.pending_pod import PendingPod
from aliquot.reports.of_plane import leaders_verdict
from tests.factories import GPU_MEM, container_manifest, make_cards
from tests.fakes import answer, until
from tests.integration.room import Room

TYPO = {"resources": {"limits": {"aliyun.com/gpu-memory": "3"}}}


class Reasons:
    """What the leader writes. `judged` are the pods that it judged."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.reasons = room.plane.waiting_reasons
        self.judged: list[str] = []

    def judge(self, pod: PendingPod) -> Told | None:
        self.judged.append(pod.metadata.name)
        return leaders_verdict(self.room.plane, pod)

    async def look(self, seconds: float = 2.0, reasons: WaitingReasons | None = None) -> None:
        """What the loop does after so much time."""
        await self.room.clock.move(seconds)
        await (reasons or self.reasons).look(self.judge)
        await until(lambda: not self.room.api.busy, "the API server has nothing to do")
        await self.room.in_sync()

    def condition(self, pod: Pod) -> dict[str, Any] | None:
        conditions = self.room.api_pod(pod).get("status", {}).get("conditions", ())
        return next((each for each in conditions if each["type"] == PLACEABLE), None)

    def events(self, pod: Pod) -> list[tuple[str, str]]:
        return [(each["reason"], each["message"]) for each in self.event_objects(pod)]

    def event_objects(self, pod: Pod) -> list[dict[str, Any]]:
        found = [held.obj for held in self.room.api.store.snapshot("events")]
        return [each for each in found if each["involvedObject"]["uid"] == pod.metadata.uid]

    def writes(self) -> int:
        return sum(1 for seen in self.room.api.writes() if PLACEABLE in str(seen.body))


@pytest.fixture
async def reasons(room: Room) -> Reasons:
    await room.add_node()
    return Reasons(room)


async def full(room: Room, *names: str, **fields: Any) -> list[Pod]:
    pods = [await room.add_pod(name, 15, **fields) for name in names]
    for pod in pods:
        await room.commit(pod, "n1")
    await room.in_sync()
    return pods


async def test_a_typo_that_no_scheduler_ever_asks_us_about_is_explained(reasons: Reasons, room: Room) -> None:
    pod = await room.add_pod(containers=[container_manifest("main", None, **TYPO)])

    await reasons.look()

    why = "Never as things are: no node has the resource aliyun.com/gpu-memory; did you mean aliyun.com/gpu-mem?"
    assert reasons.events(pod) == [("NoSuchResource", why)]
    condition = reasons.condition(pod)
    assert condition is not None
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "NoSuchResource", why)


async def test_a_silent_agent_is_named(reasons: Reasons, room: Room) -> None:
    await room.remove_node("n1")
    await room.add_node(allocatable={GPU_MEM: "0"})
    pod = await room.add_pod()

    await reasons.look()

    ((reason, message),) = reasons.events(pod)
    assert (reason, "(n1)" in message) == ("AgentSilent", True)


async def test_a_verdict_is_written_once_and_looked_at_less_and_less_often(reasons: Reasons, room: Room) -> None:
    await room.add_pod(gpu_mem=16)

    for _ in range(600):
        await reasons.look(1.0)

    assert reasons.writes() == 1
    assert 10 < len(reasons.judged) < 20


async def test_a_verdict_too_long_for_a_pod_is_written_once_too(reasons: Reasons, room: Room) -> None:
    models = ",".join(f"model-{number}" for number in range(200))
    pod = await room.add_pod("waits", 3, metadata={"annotations": {"aliquot.io/model": models}})

    for _ in range(60):
        await reasons.look(60.0)

    assert reasons.writes() == 1
    ((reason, message),) = reasons.events(pod)
    assert (reason, len(message)) == ("NoSuchModel", 1000)


async def test_an_event_is_repeated_before_it_expires_and_the_pod_is_left_alone(reasons: Reasons, room: Room) -> None:
    pod = await room.add_pod(gpu_mem=16)

    for _ in range(180):
        await reasons.look(60.0)

    (event,) = reasons.event_objects(pod)
    assert event["count"] == 4  # at once, and after 45, 90 and 135 minutes
    assert reasons.writes() == 1


async def test_an_event_that_fails_is_written_soon_after(reasons: Reasons, room: Room) -> None:
    pod = await room.add_pod(gpu_mem=16)
    room.api.script("POST", "/events", answer(500))
    await reasons.look()
    assert (reasons.writes(), reasons.events(pod)) == (1, [])

    for _ in range(2):
        await reasons.look(60.0)

    assert [reason for reason, _ in reasons.events(pod)] == ["TooLarge"]
    assert reasons.writes() == 1


async def test_a_new_leader_repeats_an_event_that_may_be_about_to_expire(reasons: Reasons, room: Room) -> None:
    pod = await room.add_pod("waits", 16)
    await reasons.look()
    plane = room.plane
    successor = WaitingReasons(room.client, plane.pod_events, plane.leadership, room.clock)
    for known in plane.pods.all():
        successor.see(known)

    for _ in range(14):
        await reasons.look(60.0, successor)
    assert [event["count"] for event in reasons.event_objects(pod)] == [1]
    for _ in range(2):
        await reasons.look(60.0, successor)

    assert [event["count"] for event in reasons.event_objects(pod)] == [2]
    assert reasons.writes() == 1


async def test_a_follower_knows_from_the_condition_when_the_event_was_written(reasons: Reasons, room: Room) -> None:
    pod = await room.add_pod("waits", 16)
    plane = room.plane
    follower = WaitingReasons(room.client, plane.pod_events, plane.leadership, room.clock)
    follower.see(pod)
    await reasons.look(1800.0)
    for known in plane.pods.all():
        follower.see(known)

    await reasons.look(2640.0, follower)
    assert [event["count"] for event in reasons.event_objects(pod)] == [1]
    await reasons.look(120.0, follower)

    assert [event["count"] for event in reasons.event_objects(pod)] == [2]


async def test_a_new_verdict_is_written_and_replaces_the_old_one(reasons: Reasons, room: Room) -> None:
    await full(room, "first", "second")
    pod = await room.add_pod("waits", 8)
    await reasons.look()
    assert [reason for reason, _ in reasons.events(pod)] == ["NoRoom"]

    await room.remove_node("n1")
    await room.add_node(make_cards(mib=(4096,)))
    await reasons.look(60.0)

    assert [reason for reason, _ in reasons.events(pod)] == ["NoRoom", "TooLarge"]
    condition = reasons.condition(pod)
    assert condition is not None
    assert condition["reason"] == "TooLarge"


async def test_a_verdict_that_comes_and_goes_is_written_ever_more_rarely(reasons: Reasons, room: Room) -> None:
    await room.add_pod("waits", 16)
    said = 0

    def judge(_: PendingPod) -> Told:
        nonlocal said
        said += 1
        return Told("NoRoom", f"for reason {said}")

    for _ in range(3600):
        await room.clock.move(1.0)
        await reasons.reasons.look(judge)
        await room.in_sync()

    assert said > 400
    assert reasons.writes() <= 12


async def test_a_bound_pod_loses_the_condition(reasons: Reasons, room: Room) -> None:
    first, _ = await full(room, "first", "second")
    pod = await room.add_pod("waits", 8)
    await reasons.look()
    assert reasons.condition(pod) is not None

    await room.delete_pod(first)
    await room.commit(pod, "n1")
    await room.in_sync()
    await reasons.look()

    assert reasons.condition(pod) is None
    assert len(reasons.reasons) == 0


async def test_a_new_leader_writes_nothing_that_is_there_already(reasons: Reasons, room: Room) -> None:
    await room.add_pod("waits", 16)
    await reasons.look()
    plane = room.plane
    successor = WaitingReasons(room.client, plane.pod_events, plane.leadership, room.clock)
    for pod in plane.pods.all():
        successor.see(pod)

    await reasons.look(reasons=successor)

    assert reasons.judged == ["waits", "waits"]
    assert reasons.writes() == 1


async def test_the_pods_of_a_replica_set_are_judged_once_and_each_is_told(reasons: Reasons, room: Room) -> None:
    for number in range(8):
        await room.add_pod(f"replica-{number}", 16)

    await reasons.look()

    assert len(reasons.judged) == 1
    assert reasons.writes() == 8


async def test_a_crowd_is_told_at_a_bounded_rate(reasons: Reasons, room: Room) -> None:
    for number in range(30):
        await room.add_pod(f"replica-{number}", 16)

    await reasons.look()
    at_first = reasons.writes()
    for _ in range(10):
        await reasons.look(1.0)

    assert at_first <= 20
    assert reasons.writes() == 30


async def test_a_pod_that_fits_is_told_only_if_its_scheduler_leaves_it_alone(reasons: Reasons, room: Room) -> None:
    pod = await room.add_pod("fits", 3)

    await reasons.look()
    assert reasons.events(pod) == []
    for _ in range(120):
        await reasons.look(1.0)

    assert [reason for reason, _ in reasons.events(pod)] == ["Fits"]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"schedulerName": "theirs"}, id="of another scheduler"),
        pytest.param({"schedulingGates": [{"name": "example.com/wait"}]}, id="gated"),
        pytest.param({"containers": [container_manifest("main", None)]}, id="without a card"),
    ],
)
async def test_other_pods_are_left_alone(reasons: Reasons, room: Room, fields: dict[str, Any]) -> None:
    pod = await room.add_pod("other", 16, **fields)

    await reasons.look()

    assert (reasons.events(pod), reasons.writes()) == ([], 0)


async def test_nothing_is_said_of_pods_in_other_namespaces(reasons: Reasons, room: Room) -> None:
    await full(room, "secret-one", "secret-two", namespace="kube-system")
    pod = await room.add_pod("waits", 8)

    await reasons.look()

    assert reasons.events(pod)
    written = str(reasons.events(pod)) + str(reasons.condition(pod))
    assert "secret" not in written
    assert "kube-system" not in written


async def test_a_pod_that_is_gone_is_forgotten(reasons: Reasons, room: Room) -> None:
    await room.add_pod("gone", 16)
    async with room.late_informer():
        room.api.registry.delete(resources.PODS, "default", "gone", DeleteRequest(grace_seconds=0))
        await room.clock.move(2.0)
        await reasons.reasons.look(reasons.judge)

        assert (reasons.judged, reasons.writes(), len(reasons.reasons)) == ([], 0, 0)
