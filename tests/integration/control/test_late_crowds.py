"""Crowds of bound pods for which there is no room: others are answered meanwhile, and nobody is judged for nothing."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from aliquot.control.state.events import QuotasRead
from aliquot.dialects import Demand
from aliquot.model import Pod, Reason
from tests.factories import make_cards
from tests.integration.control.test_late_placement import PATIENCE, Placer, bound, placer_of, status_of
from tests.integration.control.test_quota_map import quota_of
from tests.integration.room import Room

CROWD = 20
CARD = 15360
TOO_LARGE: dict[str, Any] = {
    "containers": [
        {"name": f"c{place}", "image": "x", "resources": {"limits": {"aliquot.io/gpu": "1"}}} for place in range(8)
    ],
    "metadata": {"annotations": {"aliquot.io/memory": "7000Mi"}},
}


async def a_crowd(room: Room, **fields: Any) -> list[Pod]:
    await room.add_node(make_cards(mib=(CARD,)))
    return [await bound(room, f"p{number}", **TOO_LARGE, **fields) for number in range(CROWD)]


@contextmanager
def reading(room: Room) -> Iterator[list[str]]:
    """Whose demands are read: nobody is judged without that."""
    seen: list[str] = []
    read = room.plane.cluster.demand_of

    def demand_of(pod: Pod) -> Demand | None:
        seen.append(pod.metadata.name)
        return read(pod)

    with patch.object(room.plane.cluster, "demand_of", demand_of):
        yield seen


async def looked_at(room: Room, placer: Placer) -> set[str]:
    with reading(room) as seen:
        await placer.look()
    return set(seen)


async def test_others_have_their_turn_between_two_pods(room: Room) -> None:
    await a_crowd(room)
    turn, per_turn = 0, Counter[int]()
    placer = placer_of(room)
    with reading(room) as seen:
        looking = asyncio.create_task(placer.look())
        while not looking.done():
            before = len(seen)
            await asyncio.sleep(0)
            per_turn[turn] += len(seen) - before
            turn += 1
    assert set(seen) == {f"p{number}" for number in range(CROWD)}
    assert max(per_turn.values()) <= 1


async def test_a_pod_without_room_is_looked_at_again_only_when_something_changed_for_it(room: Room) -> None:
    crowd = await a_crowd(room)
    await room.add_node(make_cards("n2"))
    placer = placer_of(room)
    everybody = {pod.metadata.name for pod in crowd}
    assert await looked_at(room, placer) == everybody
    assert await looked_at(room, placer) == set()
    await room.commit(await room.add_pod("elsewhere"), "n2")
    assert await looked_at(room, placer) == set()
    here = await room.add_pod("here")
    await room.commit(here, "n1")
    assert await looked_at(room, placer) == everybody
    await room.delete_pod(here)
    assert await looked_at(room, placer) == everybody
    await room.change_node(make_cards(mib=(CARD, CARD)))
    assert await looked_at(room, placer) == everybody
    assert await looked_at(room, placer) == set()


async def test_a_crowd_without_room_fails_in_time(room: Room) -> None:
    crowd = await a_crowd(room)
    placer = placer_of(room)
    await placer.look()
    await room.clock.move(PATIENCE - 1)
    await placer.look()
    assert {status_of(room, pod)["phase"] for pod in crowd} == {"Pending"}
    await room.clock.move(1)
    await placer.look()
    assert {(status_of(room, pod)["phase"], status_of(room, pod)["reason"]) for pod in crowd} == {
        ("Failed", "AliquotNoRoom")
    }


async def test_a_pod_beyond_its_quota_is_placed_when_the_quota_has_room(room: Room) -> None:
    """On its own node nothing changes."""
    for name in ("n1", "n2"):
        await room.add_node(make_cards(name))
    other = await room.add_pod("other", 15)
    await room.commit(other, "n2")
    room.plane.cluster.apply(QuotasRead(quota_of(T4=1)))
    await bound(room, "p", 15)
    placer = placer_of(room)
    await placer.look()
    assert room.used() == {}
    await room.delete_pod(other)
    await placer.look()
    assert room.used() == {0: 15}


async def test_failed_attempts_take_a_namespace_a_fifth_of_the_time_and_others_nothing(room: Room) -> None:
    """Each takes half a second here: two seconds at once, and one look each 2.5 s from then on."""
    await a_crowd(room)
    placer, judge = placer_of(room), room.plane.cluster.refusal

    def slow(demand: Demand, node: str) -> Reason | None:
        room.clock._now += 0.5
        return judge(demand, node)

    with patch.object(room.plane.cluster, "refusal", slow):
        assert 4 <= len(await judged(room, placer)) <= 6
        assert await looked_at(room, placer) == set()
        other = await bound(room, "other", namespace="kube-system")
        await placer.look()
        assert room.entries()[other.metadata.uid].placement.containers
        await room.clock.move(5)
        assert 1 <= len(await judged(room, placer)) <= 3


async def judged(room: Room, placer: Placer) -> set[str]:
    """Their demand is read to find their place in the line, and once more to judge them."""
    with reading(room) as seen:
        await placer.look()
    return {name for name, times in Counter(seen).items() if times > 1}
