"""Lists and watches of the query API: selectors, pages, versions, bookmarks, forms and errors."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aliquot.endpoints.asgi import Caller
from aliquot.model.bounds import MAX_LISTS_OF_CALLER, MAX_READS
from tests.factories import make_cards
from tests.fakes import BusyClock
from tests.integration.endpoints.query import SEED, TABLE, Query, querying
from tests.integration.room import Room

pytestmark = pytest.mark.embedded_only("the API server is in front of it, in tests/e2e")

PODS = f"{SEED}/podresources"
TENANTS = "/apis/gpu.aliquot.io/v1alpha1"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


@pytest.fixture
def clock() -> BusyClock:
    return BusyClock()


async def place(room: Room, name: str, node: str, namespace: str = "default") -> None:
    metadata = {"labels": {"app": name[0]}}
    await room.commit(await room.add_pod(name, 2, namespace=namespace, metadata=metadata), node)
    await room.in_sync()


@pytest.fixture
async def query(room: Room) -> AsyncIterator[Query]:
    """a1, a2 and b1 of default on n1, n2 and n2; a1 of kube-system on n2."""
    await room.add_node(make_cards("n1"))
    await room.add_node(make_cards("n2"))
    for name, node, namespace in (
        ("a1", "n1", "default"),
        ("a2", "n2", "default"),
        ("b1", "n2", "default"),
        ("a1", "n2", "kube-system"),
    ):
        await place(room, name, node, namespace)
    async with querying(room) as made:
        yield made


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


@pytest.mark.parametrize(
    ("query_string", "found"),
    [
        ({"labelSelector": "app=a"}, ["default.a1", "default.a2", "kube-system.a1"]),
        ({"labelSelector": "app=a,aliquot.io/node=n2"}, ["default.a2", "kube-system.a1"]),
        ({"labelSelector": "nvidia-gpu-scheduler.node in (n1)"}, ["default.a1"]),
        ({"labelSelector": "aliquot.io/namespace!=default"}, ["kube-system.a1"]),
        ({"labelSelector": "aliquot.io/model=Tesla-T4,app=b"}, ["default.b1"]),
        ({"fieldSelector": "spec.node_name=n2,spec.pod_namespace=default"}, ["default.a2", "default.b1"]),
        ({"fieldSelector": "metadata.name=default.b1"}, ["default.b1"]),
    ],
)
async def test_selectors(query: Query, query_string: dict[str, str], found: list[str]) -> None:
    assert names(await query.get(PODS, **query_string)) == found


async def test_a_namespace_shows_its_own_pods_only(query: Query) -> None:
    assert names(await query.get(f"{TENANTS}/namespaces/kube-system/podgpus")) == ["a1"]
    assert names(await query.get(f"{TENANTS}/namespaces/nobody/podgpus")) == []
    assert len(names(await query.get(f"{TENANTS}/podgpus"))) == 4
    async with query.watch(f"{TENANTS}/namespaces/kube-system/podgpus", timeoutSeconds="1") as frames:
        first, end = await frames.take(2)
    assert (first["type"], first["object"]["metadata"]["namespace"], end) == ("ADDED", "kube-system", None)


async def test_pages_are_of_one_moment(query: Query) -> None:
    first = await query.get(PODS, limit="2")
    assert names(first) == ["default.a1", "default.a2"]
    assert first["metadata"]["remainingItemCount"] == 2
    await place(query.room, "b0", "n1")
    await query.settled()
    rest = await query.get(PODS, limit="2", **{"continue": first["metadata"]["continue"]})
    assert names(rest) == ["default.b1", "kube-system.a1"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    async with querying(query.room, instance=8) as other:
        status, _, body = await other.ask("GET", PODS, **{"continue": first["metadata"]["continue"]})
    assert (status, body["reason"]) == (410, "Expired")


async def test_versions_tell_servers_and_runs_apart_and_grow(query: Query) -> None:
    before = int((await query.get(PODS))["metadata"]["resourceVersion"])
    await place(query.room, "c1", "n1")
    await query.settled()
    assert before < int((await query.get(PODS))["metadata"]["resourceVersion"]) < 2**63
    await query.room.clock.move(1)
    async with querying(query.room, instance=3) as restarted:
        assert int((await restarted.get(PODS))["metadata"]["resourceVersion"]) > before


@pytest.mark.parametrize("version", ["", "0"])
async def test_a_watch_without_a_version_begins_with_what_there_is(query: Query, version: str) -> None:
    asked = {"resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": "1"}
    async with query.watch(PODS, **asked) as frames:
        assert [frame["type"] for frame in await frames.take(4)] == ["ADDED"] * 4


async def test_a_streaming_list_ends_with_a_bookmark(query: Query) -> None:
    asked = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with query.watch(PODS, **asked) as frames:
        *added, bookmark = await frames.take(5)
        assert [frame["type"] for frame in added] == ["ADDED"] * 4
        assert bookmark["type"] == "BOOKMARK"
        metadata = bookmark["object"]["metadata"]
        assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
    await place(query.room, "c1", "n1")
    await query.settled()
    async with query.watch(PODS, resourceVersion=metadata["resourceVersion"]) as frames:
        assert (await frames.next())["object"]["metadata"]["name"] == "default.c1"


async def test_a_watch_ends_after_its_time(query: Query) -> None:
    version = (await query.get(PODS))["metadata"]["resourceVersion"]
    async with query.watch(PODS, resourceVersion=version, timeoutSeconds="1") as frames:
        assert await frames.next() is None


async def test_a_selected_watch_sees_objects_come_and_go(query: Query) -> None:
    version = (await query.get(PODS))["metadata"]["resourceVersion"]
    async with query.watch(PODS, resourceVersion=version, labelSelector="app=c") as frames:
        await place(query.room, "b2", "n1")
        await place(query.room, "c1", "n1")
        frame = await frames.next()
        assert (frame["type"], frame["object"]["metadata"]["name"]) == ("ADDED", "default.c1")
        pod = query.room.plane.pods.get("default/c1")
        assert pod is not None
        await query.room.delete_pod(pod)
        assert (await frames.next())["type"] == "DELETED"


async def test_a_watch_of_a_table_has_one_row_in_each_frame(query: Query) -> None:
    version = (await query.get(PODS))["metadata"]["resourceVersion"]
    async with query.watch(PODS, TABLE, resourceVersion=version, allowWatchBookmarks="true") as frames:
        await place(query.room, "c1", "n1")
        frame = await frames.next()
    assert (frame["type"], frame["object"]["kind"]) == ("ADDED", "Table")
    (row,) = frame["object"]["rows"]
    assert row["cells"][0] == "default.c1"


async def test_a_client_may_ask_for_metadata_only(query: Query) -> None:
    one = await query.get(f"{PODS}/default.a1", METADATA)
    assert one.keys() == {"kind", "apiVersion", "metadata"}
    many = await query.get(PODS, METADATA.replace("Metadata;", "MetadataList;"))
    assert (many["kind"], len(many["items"])) == ("PartialObjectMetadataList", 4)
    whole = await query.get(PODS, TABLE, includeObject="Object")
    row = whole["rows"][0]["object"]
    assert (row["kind"], row["spec"]["pod_name"]) == ("PodResource", "a1"), "kubectl get --sort-by reads it"


async def test_each_item_of_a_list_says_its_kind_as_the_originals_does(query: Query) -> None:
    for path, kind in ((PODS, "PodResource"), (f"{SEED}/gpuinfos", "GpuInfo")):
        items = (await query.get(path))["items"]
        assert {(item["kind"], item["apiVersion"]) for item in items} == {(kind, "metrics.nvidia.com/v1alpha1")}
    newer = (await query.get("/apis/nvidia-gpu-scheduler/v1/gpupods"))["items"]
    assert {(item["kind"], item["apiVersion"]) for item in newer} == {("GpuPod", "nvidia-gpu-scheduler/v1")}


async def test_many_watchers_get_the_same_frames(query: Query) -> None:
    version = (await query.get(PODS))["metadata"]["resourceVersion"]

    async def first_two() -> list[Any]:
        async with query.watch(PODS, resourceVersion=version) as frames:
            return await frames.take(2)

    watchers = [asyncio.create_task(first_two()) for _ in range(20)]
    await place(query.room, "c1", "n1")
    await place(query.room, "c2", "n1")
    seen = await asyncio.gather(*watchers)
    assert [frame["object"]["metadata"]["name"] for frame in seen[0]] == ["default.c1", "default.c2"]
    assert all(frames == seen[0] for frames in seen)


@pytest.mark.parametrize(
    ("method", "path", "parameters", "code", "reason"),
    [
        ("GET", f"{PODS}/default.nobody", {}, 404, "NotFound"),
        ("GET", f"{SEED}/pods", {}, 404, "NotFound"),
        ("GET", f"{PODS}/a/b", {}, 404, "NotFound"),
        ("GET", f"{SEED}/namespaces/default/podresources", {}, 404, "NotFound"),
        ("GET", f"{TENANTS}/podgpus/a1", {}, 404, "NotFound"),
        ("GET", "/apis/other/v1", {}, 404, "NotFound"),
        ("GET", f"/{'x' * 2000}", {}, 404, "NotFound"),
        ("POST", PODS, {}, 405, "MethodNotAllowed"),
        ("DELETE", f"{PODS}/default.a1", {}, 405, "MethodNotAllowed"),
        ("PUT", f"{PODS}/default.a1", {}, 405, "MethodNotAllowed"),
        ("PATCH", SEED, {}, 405, "MethodNotAllowed"),
        ("GET", PODS, {"labelSelector": "=="}, 400, "BadRequest"),
        ("GET", PODS, {"fieldSelector": "spec.other=1"}, 400, "BadRequest"),
        ("GET", PODS, {"limit": "many"}, 400, "BadRequest"),
        ("GET", PODS, {"resourceVersion": "new"}, 400, "BadRequest"),
        ("GET", PODS, {"continue": "x"}, 400, "BadRequest"),
        ("GET", PODS, {"includeObject": "Some"}, 400, "BadRequest"),
        ("GET", PODS, {"watch": "true", "timeoutSeconds": "-1"}, 400, "BadRequest"),
    ],
)
async def test_errors_are_status_objects(
    query: Query, method: str, path: str, parameters: dict[str, str], code: int, reason: str
) -> None:
    status, headers, body = await query.ask(method, path, **parameters)
    assert (status, headers["Content-Type"]) == (code, "application/json")
    assert (body["kind"], body["apiVersion"], body["status"]) == ("Status", "v1", "Failure")
    assert (body["reason"], body["code"]) == (reason, code)


# -- many lists at once


def master(name: str) -> Caller:
    return Caller(name, frozenset(), ("system:masters",))


async def test_schedulers_are_answered_while_a_list_selects_and_is_made(query: Query, clock: BusyClock) -> None:
    clock.asked.clear()
    clock.step = 1.0
    await query.ask_as(master("jane"), "GET", PODS, "labelSelector=app=a")
    clock.step = 0.0
    assert clock.asked.count(0) == 2


async def test_one_caller_leaves_places_to_others_and_all_to_schedulers(query: Query, clock: BusyClock) -> None:
    clock.step = 1.0
    mine = [query.ask_as(master("jane"), "GET", PODS) for _ in range(MAX_LISTS_OF_CALLER + 1)]
    others = [query.ask_as(master(f"user-{number}"), "GET", PODS) for number in range(MAX_READS - MAX_LISTS_OF_CALLER)]
    answers = await asyncio.gather(*mine, *others, query.ask_as(master("late"), "GET", PODS))
    clock.step = 0.0
    refused = [number for number, (status, _) in enumerate(answers) if status == 503]
    assert refused == [MAX_LISTS_OF_CALLER, len(answers) - 1]
    assert answers[-1][1]["details"] == {"retryAfterSeconds": 1}
    assert (await query.ask_as(master("late"), "GET", PODS))[0] == 200


async def test_lists_take_turns(query: Query, clock: BusyClock) -> None:
    """With many lists at once, a scheduler still waits for one stretch, and not for one of each."""
    clock.step, turns = 1.0, 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    await asyncio.gather(*(query.ask_as(master(f"user-{number}"), "GET", PODS) for number in range(10)))
    counting.cancel()
    clock.step = 0.0
    assert turns >= 10 * 2
