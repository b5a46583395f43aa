"""Events: the same again is counted, and no pod is flooded."""

from typing import Any

import pytest

from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.kube import Client
from aliquot.kube.event_recorder import EventRecorder
from aliquot.model import Node, Pod
from tests.factories import make_node, make_pod
from tests.fakes import FakeClock, ScriptedApi, answer


class Told:
    def __init__(self, api: ScriptedApi, client: Client, clock: FakeClock) -> None:
        self.api = api
        self.clock = clock
        self._events = EventRecorder(client, clock, "tests")

    async def write(self, pod: Pod | Node, message: str = "no room", reason: str = "FailedScheduling") -> bool:
        return await self._events.write(pod, kind="Warning", reason=reason, message=message)

    def objects(self) -> list[Any]:
        return [held.obj for held in self.api.store.snapshot("events")]

    def shown(self) -> list[tuple[str, int]]:
        return sorted((event["message"], event["count"]) for event in self.objects())


@pytest.fixture
def told(scripted: ScriptedApi, client: Client, clock: FakeClock) -> Told:
    return Told(scripted, client, clock)


async def test_the_same_again_is_counted_in_the_first_event(told: Told) -> None:
    pod = make_pod()
    for _ in range(3):
        assert await told.write(pod)
        await told.clock.move(30)
    (event,) = told.objects()
    assert event["count"] == 3
    assert event["involvedObject"]["uid"] == pod.metadata.uid
    assert event["firstTimestamp"] < event["lastTimestamp"]


async def test_other_words_reasons_and_pods_are_other_events(told: Told) -> None:
    pod = make_pod()
    for message, reason in [("a", "R"), ("b", "R"), ("a", "S")]:
        await told.write(pod, message, reason)
    await told.write(make_pod("q"), "a", "R")
    assert told.shown() == [("a", 1), ("a", 1), ("a", 1), ("b", 1)]


async def test_after_a_while_the_same_is_news_again(told: Told) -> None:
    pod = make_pod()
    await told.write(pod)
    await told.clock.move(3601)
    await told.write(pod)
    assert told.shown() == [("no room", 1), ("no room", 1)]


async def test_an_event_that_was_cleared_away_is_written_again(told: Told) -> None:
    pod = make_pod()
    await told.write(pod)
    name = told.objects()[0]["metadata"]["name"]
    told.api.registry.delete(resources.EVENTS, "default", name, DeleteRequest())
    await told.clock.move(1)
    await told.write(pod)
    await told.write(pod)
    assert told.shown() == [("no room", 2)]


async def test_without_the_right_to_count_every_event_is_new(told: Told) -> None:
    told.api.script("PATCH", "/events/", answer(403, message="no"), answer(403, message="no"))
    pod = make_pod()
    for _ in range(3):
        await told.write(pod)
        await told.clock.move(1)
    assert told.shown() == [("no room", 1)] * 3


async def test_no_pod_is_flooded_and_others_are_still_told(told: Told) -> None:
    pod, other = make_pod(), make_pod("other")
    written = []
    for number in range(30):
        written.append(await told.write(pod, f"word {number}"))
        await told.clock.move(0.001)
    assert written == [True] * 25 + [False] * 5
    assert await told.write(other)
    await told.clock.move(300)
    assert await told.write(pod, "later")
    assert not await told.write(pod, "at once")


async def test_events_about_a_node_are_in_the_default_namespace(told: Told) -> None:
    node = make_node("n1")
    for _ in range(2):
        assert await told.write(node)
    (event,) = told.objects()
    assert (event["metadata"]["namespace"], event["count"]) == ("default", 2)
    assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Node", "n1")
    assert "namespace" not in event["involvedObject"]
