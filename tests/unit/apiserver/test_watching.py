"""Watches of a store: where they begin, and what becomes of one that falls behind."""

import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import pytest

from aliquot.apiserver.answers import Presenter
from aliquot.apiserver.lists import Selection, flag
from aliquot.apiserver.media import Form
from aliquot.apiserver.objects import with_metadata
from aliquot.apiserver.resources import ServedResource
from aliquot.apiserver.store import Store
from aliquot.apiserver.watching import Watch, options_of
from tests.unit.apiserver.test_replay import thing

THINGS = ServedResource("things", "Thing")
COLLECTION = THINGS.collection


def presenter() -> Presenter:
    return Presenter(THINGS, clock=lambda: datetime.now(UTC))


def watch(store: Store, shared: Presenter | None = None, **query: str) -> AsyncGenerator[bytes, None]:
    return Watch(store, THINGS, Selection(), shared or presenter(), options_of(query)).frames()


async def frames(stream: AsyncGenerator[bytes, None], count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += [json.loads(line) for line in (await anext(stream)).splitlines()]
    return found


async def test_a_watcher_that_falls_behind_gets_410_and_no_gap() -> None:
    store = Store(log_capacity=4)
    stream = watch(store, resourceVersion="0")
    assert await anext(stream) == b""
    for value in range(10):
        store.put(COLLECTION, thing("a", value))
    (error,) = await frames(stream, 1)
    assert (error["type"], error["object"]["code"], error["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert [line async for line in stream] == []


async def test_what_happens_while_the_first_objects_are_sent_comes_after_them() -> None:
    store = Store()
    for number in range(200):
        store.put(COLLECTION, thing(f"{number:03}", 0))
    stream = watch(store, sendInitialEvents="true", allowWatchBookmarks="true")
    await anext(stream)
    store.put(COLLECTION, thing("000", 1))
    *first, bookmark, late = await frames(stream, 202)
    assert [frame["object"]["value"] for frame in first] == [0] * 200
    assert (bookmark["type"], bookmark["object"]["metadata"]["resourceVersion"]) == ("BOOKMARK", "200")
    assert (late["type"], late["object"]["value"]) == ("MODIFIED", 1)
    await stream.aclose()


async def test_watchers_share_the_bytes_of_a_frame() -> None:
    store, shared = Store(), presenter()
    streams = [watch(store, shared, resourceVersion="0") for _ in range(2)]
    for stream in streams:
        await anext(stream)
    store.put(COLLECTION, thing("a", 1))
    seen = [await anext(stream) for stream in streams]
    assert seen[0] == seen[1]
    event = store.watch(COLLECTION, 0).ready()[0]
    assert shared.frame(event.change, event.stored) is shared.frame(event.change, event.stored)
    for stream in streams:
        await stream.aclose()


async def test_each_table_begins_with_ages_of_its_own_time() -> None:
    store, now = Store(), [datetime(2026, 1, 1, 12, tzinfo=UTC)]
    shared = Presenter(THINGS, form=Form.TABLE, clock=lambda: now[-1])
    store.put(COLLECTION, with_metadata(thing("a", 1), creationTimestamp="2026-01-01T11:59:00Z"))

    async def age() -> str:
        stream = watch(store, shared)
        (frame,) = await frames(stream, 1)
        await stream.aclose()
        (row,) = frame["object"]["rows"]
        return str(row["cells"][-1])

    assert await age() == "60s"
    now.append(datetime(2026, 1, 3, 11, 59, tzinfo=UTC))
    assert await age() == "2d"


@pytest.mark.parametrize(
    ("query", "is_set"),
    [({}, False), ({"watch": "0"}, False), ({"watch": "False"}, False), ({"watch": ""}, True), ({"watch": "yes"}, True)],
)
def test_a_parameter_is_true_unless_it_says_no(query: dict[str, str], is_set: bool) -> None:
    assert flag(query, "watch") is is_set
