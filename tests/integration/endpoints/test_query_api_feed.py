"""Whatever happens in the cluster: objects that were kept up to date are those of a server that starts anew, and every
watcher has seen the way there."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot.apiserver.eventlog import Cursor, EventType
from aliquot.apiserver.objects import key_of
from aliquot.endpoints.query.api import QueryApi
from aliquot.endpoints.query.resources import GPU_INFOS, POD_GPUS, POD_RESOURCES
from aliquot.errors import AliquotError
from aliquot.kube import Access, Client
from tests.factories import T4, make_cards
from tests.fakes import FakeClock, ScriptedApi
from tests.integration.endpoints.query import Query, querying
from tests.integration.room import Room

pytestmark = pytest.mark.embedded_only("many clusters, one after another")

COLLECTIONS = [each.collection for each in (GPU_INFOS, POD_GPUS, POD_RESOURCES)]
NODES = ("n1", "n2")
TIMES = ("last_changed_time", "last_transition_time", "node_last_health_time", "last_health_time", "report_time")
"""What only a server that was there can know, and what is renewed now and then."""
steps = st.one_of(
    st.tuples(st.just("place"), st.sampled_from("abc"), st.sampled_from(NODES)),
    st.tuples(st.sampled_from(["delete", "end"]), st.sampled_from("abc"), st.just("")),
    st.tuples(st.sampled_from(["lose", "shrink", "fail"]), st.just(""), st.sampled_from(NODES)),
    st.tuples(st.just("renew"), st.just(""), st.sampled_from(NODES)),
    st.tuples(st.just("wait"), st.just(""), st.just("")),
)


class Story:
    def __init__(self, query: Query) -> None:
        self._query = query
        self._room = query.room
        self._beats = 0

    async def step(self, what: str, pod: str, node: str) -> None:
        match what:
            case "place":
                await self._place(pod, node)
            case "delete" | "end":
                await self._end(pod, is_deleted=what == "delete")
            case "lose":
                if self._room.plane.nodes.get(node) is not None:
                    await self._room.remove_node(node)
            case "shrink":
                await self._show(node, mib=(T4,))
            case "fail":
                await self._show(node, unhealthy=(0,))
            case "renew":
                self._beats += 1
                await self._query.heartbeat(node, f"2023-11-14T23:{self._beats % 60:02}:00.000000Z")
            case "wait":
                await self._room.clock.move(45)
        await self._room.in_sync()

    async def _place(self, name: str, node: str) -> None:
        if self._room.plane.nodes.get(node) is None:
            await self._show(node)
        if self._room.plane.pods.get(f"default/{name}") is not None:
            return
        pod = await self._room.add_pod(name, 9)
        try:
            await self._room.commit(pod, node)
        except AliquotError:
            await self._room.delete_pod(pod)

    async def _end(self, name: str, *, is_deleted: bool) -> None:
        pod = self._room.plane.pods.get(f"default/{name}")
        if pod is None:
            return
        if is_deleted:
            await self._room.delete_pod(pod)
        else:
            await self._room.report(pod, phase="Succeeded")

    async def _show(self, node: str, **cards: Any) -> None:
        made = make_cards(node, **cards)
        if self._room.plane.nodes.get(node) is None:
            await self._room.add_node(made)
        else:
            await self._room.change_node(made)


def shown(api: QueryApi) -> dict[str, Any]:
    """All objects, without versions and times."""
    left_out = ("resourceVersion", *TIMES)
    return {
        f"{collection} {key_of(stored.obj)}": {
            part: {key: value for key, value in fields.items() if key not in left_out}
            for part, fields in stored.obj.items()
        }
        for collection in COLLECTIONS
        for stored in api.store.snapshot(collection)
    }


def replay(state: dict[Any, Any], cursor: Cursor) -> None:
    while events := cursor.ready():
        for event in events:
            key = key_of(event.stored.obj)
            if event.change is EventType.DELETED:
                assert state.pop(key)["metadata"]["uid"] == event.stored.obj["metadata"]["uid"]
            else:
                assert (key in state) is (event.change is EventType.MODIFIED)
                assert key not in state or state[key]["metadata"]["uid"] == event.stored.obj["metadata"]["uid"]
                state[key] = event.stored.obj


async def told(story: list[tuple[str, str, str]]) -> None:
    clock = FakeClock()
    async with (
        ScriptedApi() as api,
        Client(Access(api.url)) as client,
        Room(api, client, clock) as room,
        querying(room) as query,
    ):
        store, tale = query.api.store, Story(query)
        watched: dict[str, dict[Any, Any]] = {collection: {} for collection in COLLECTIONS}
        cursors = {collection: store.watch(collection, store.revision) for collection in COLLECTIONS}
        for step in story:
            await tale.step(*step)
        await query.settled()
        query.api.feed.look()
        await query.settled()
        for collection, state in watched.items():
            replay(state, cursors[collection])
            assert state == {key_of(item.obj): item.obj for item in store.snapshot(collection)}
        async with querying(room, instance=8) as anew:
            assert shown(query.api) == shown(anew.api)


@given(st.lists(steps, max_size=14))
@settings(max_examples=40)
def test_kept_up_to_date_is_made_anew(story: list[tuple[str, str, str]]) -> None:
    asyncio.run(told(story))


async def test_a_pod_that_was_made_anew_under_its_name_comes_after_the_end_of_the_old_one(room: Room) -> None:
    await room.add_node(make_cards("n1"))
    await room.add_node(make_cards("n2"))
    first = await room.add_pod("web-0", 3)
    await room.commit(first, "n1")
    async with querying(room) as query:
        cursor = query.api.store.watch(POD_GPUS.collection, query.api.store.revision)
        await room.delete_pod(first)
        second = await room.add_pod("web-0", 3)
        await room.commit(second, "n2")
        await query.settled()
        seen = [(event.change, event.stored.obj["metadata"]["uid"]) for event in cursor.ready()]
    assert seen == [(EventType.DELETED, first.metadata.uid), (EventType.ADDED, second.metadata.uid)]


@pytest.mark.parametrize("state", ["reserved", "expired"])
async def test_a_card_that_is_kept_for_a_pod_is_busy(room: Room, state: str) -> None:
    await room.add_node()
    pod = await room.add_pod("late", 3)
    async with querying(room) as query:
        room.plane.reservations.reserve(pod, "n1", 60)
        await room.clock.move(2 if state == "reserved" else 100)
        await query.settled()
        stored = query.api.store.get(GPU_INFOS.collection, ("", "n1"))
        assert stored is not None
        assert bool(stored.obj["spec"]["device_busy"]) is (state == "reserved")
