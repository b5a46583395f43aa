"""Watches: where they start, what they show, how they end."""

import asyncio

import aiohttp
import pytest

from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api.resources import CONFIG_MAPS as CONFIG_MAPS_RESOURCE
from tests.fakes import SECONDS
from tests.integration.embedded.client import CONFIG_MAPS, PODS, TABLE, Api, binding, config_map, pod


async def revision(api: Api) -> str:
    version = (await api.get(PODS)).expect(200)["metadata"]["resourceVersion"]
    assert isinstance(version, str)
    return version


@pytest.mark.parametrize("version", [{}, {"resourceVersion": ""}, {"resourceVersion": "0"}])
async def test_without_a_version_a_watch_starts_with_what_is_there(api: Api, version: dict[str, str]) -> None:
    await api.post(PODS, pod("old"))
    async with api.watch(PODS, **version) as frames:
        assert await frames.names(1) == [("ADDED", "old")]
        await api.post(PODS, pod("new"))
        assert await frames.names(1) == [("ADDED", "new")]


async def test_a_watch_resumes_after_its_version(api: Api) -> None:
    await api.post(PODS, pod("old"))
    since = await revision(api)
    await api.patch(f"{PODS}/old", {"metadata": {"labels": {"a": "b"}}})
    await api.post(PODS, pod("new"))
    await api.delete(f"{PODS}/old")
    async with api.watch(PODS, resourceVersion=since) as frames:
        leaves = [("MODIFIED", "old"), ("DELETED", "old")]
        assert await frames.names(4) == [("MODIFIED", "old"), ("ADDED", "new"), *leaves]


async def test_frames_carry_whole_objects_and_growing_versions(api: Api) -> None:
    async with api.watch(PODS) as frames:
        created = (await api.post(PODS, pod())).expect(201)
        assert await frames.next() == {"type": "ADDED", "object": created}
        await api.delete(f"{PODS}/web")
        gone = (await frames.next())["object"]
        assert int(gone["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])


async def test_an_idle_watch_answers_at_once(api: Api) -> None:
    async with asyncio.timeout(SECONDS), api.watch(PODS, resourceVersion=await revision(api)):
        pass


async def test_objects_come_and_go_with_the_selector(api: Api) -> None:
    await api.post(PODS, pod())
    everywhere = "/api/v1/pods"
    async with (
        api.watch(everywhere, fieldSelector="spec.nodeName=") as unbound,
        api.watch(everywhere, fieldSelector="spec.nodeName=node-1") as bound,
    ):
        assert await unbound.names(1) == [("ADDED", "web")]
        await api.post(f"{PODS}/web/binding", binding())
        gone = await unbound.next()
        assert (gone["type"], gone["object"]["spec"].get("nodeName")) == ("DELETED", None)
        assert gone["object"]["metadata"]["resourceVersion"] == await revision(api)
        assert await bound.names(1) == [("ADDED", "web")]
        await api.patch(f"{PODS}/web/status", {"status": {"phase": "Running"}})
        assert await bound.names(1) == [("MODIFIED", "web")]


async def test_other_namespaces_and_labels_are_not_shown(api: Api) -> None:
    await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    async with api.watch(PODS, labelSelector="app=web") as frames:
        await api.post(PODS.replace("default", "team"), pod("far", labels={"app": "web"}))
        await api.post(PODS, pod("unlabelled"))
        await api.post(PODS, pod("near", labels={"app": "web"}))
        assert await frames.names(1) == [("ADDED", "near")]


async def test_one_object_is_watched_among_those_of_its_name(api: Api) -> None:
    """Its own path can only be read."""
    async with api.watch(PODS, fieldSelector="metadata.name=b") as frames:
        await api.post(PODS, pod("a"))
        created = (await api.post(PODS, pod("b"))).expect(201)
        assert await frames.names(1) == [("ADDED", "b")]
    assert (await api.get(f"{PODS}/b", watch="true")).expect(200) == created
    (await api.get(f"{PODS}/c", watch="true")).refused(404, "NotFound")


@pytest.mark.embedded_only("a real server remembers for five minutes")
async def test_a_version_that_is_forgotten_is_gone(api: Api, cluster: EmbeddedCluster) -> None:
    since = await revision(api)
    for number in range(66):
        cluster.registry.create(CONFIG_MAPS_RESOURCE, "default", config_map(f"c{number}"))
    async with api.watch(CONFIG_MAPS, resourceVersion=since) as frames:
        frame = await frames.next()
        assert (frame["type"], frame["object"]["code"], frame["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert await frames.next() is None


async def test_other_resources_do_not_push_events_out(api: Api, cluster: EmbeddedCluster) -> None:
    await api.post(PODS, pod())
    since = str(int(await revision(api)) - 1)
    for number in range(66):
        cluster.registry.create(CONFIG_MAPS_RESOURCE, "default", config_map(f"c{number}"))
    async with api.watch(PODS, resourceVersion=since) as frames:
        assert await frames.names(1) == [("ADDED", "web")]


@pytest.mark.embedded_only("a real server remembers for five minutes")
async def test_a_watcher_that_falls_behind_is_dropped(api: Api, cluster: EmbeddedCluster) -> None:
    async with api.watch(CONFIG_MAPS, resourceVersion=await revision(api)) as frames:
        for number in range(70):
            cluster.registry.create(CONFIG_MAPS_RESOURCE, "default", config_map(f"c{number}"))
        assert (await frames.next())["object"]["code"] == 410
        assert await frames.next() is None


@pytest.mark.embedded_only("a real server remembers for five minutes")
async def test_a_watcher_that_does_not_read_is_dropped(api: Api, cluster: EmbeddedCluster) -> None:
    async with api.watch(CONFIG_MAPS, resourceVersion=await revision(api)) as frames:
        for number in range(300):
            cluster.registry.create(CONFIG_MAPS_RESOURCE, "default", config_map(f"c{number}", a="x" * 100_000))
            await asyncio.sleep(0)
        read = [await frames.next()]
        while read[-1] is not None:
            read.append(await frames.next())
        assert len(read) < 300
        assert (read[-2]["type"], read[-2]["object"]["code"]) == ("ERROR", 410)


@pytest.mark.embedded_only("a real server waits for it without a word")
async def test_a_version_from_the_future_is_refused_in_the_stream(api: Api) -> None:
    async with api.watch(PODS, resourceVersion="999999") as frames:
        assert (await frames.next())["object"]["code"] == 504


@pytest.mark.embedded_only("a real server sends bookmarks each minute")
async def test_a_watch_ends_when_its_time_is_over_with_a_bookmark(api: Api) -> None:
    await api.post(PODS, pod())
    query = {"timeoutSeconds": "1", "allowWatchBookmarks": "true", "resourceVersion": await revision(api)}
    async with api.watch(PODS, **query) as frames:
        bookmark = await frames.next()
        assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "Pod")
        assert bookmark["object"]["metadata"]["resourceVersion"] == await revision(api)
        assert await frames.next() is None


async def test_initial_events_end_with_their_bookmark(api: Api) -> None:
    await api.post(PODS, pod())
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with api.watch(PODS, resourceVersion=await revision(api), **query) as frames:
        assert await frames.names(1) == [("ADDED", "web")]
        bookmark = (await frames.next())["object"]["metadata"]
        assert bookmark["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_tables_can_be_watched(api: Api) -> None:
    async with api.watch(PODS, accept=TABLE) as frames:
        await api.post(PODS, pod())
        table = (await frames.next())["object"]
        assert table["kind"] == "Table"
        assert table["rows"][0]["cells"][:3] == ["web", "0/1", "Pending"]


@pytest.mark.embedded_only("looks at the tasks of the server")
async def test_a_client_that_goes_leaves_nothing_behind(api: Api, cluster: EmbeddedCluster) -> None:
    before = asyncio.all_tasks()
    for _ in range(3):
        async with api.watch(PODS, resourceVersion=await revision(api)):
            pass
    await api.post(PODS, pod())
    await api.get(PODS)
    left = {task for task in asyncio.all_tasks() - before if "frames" in repr(task)}
    assert not left
    assert cluster.url


@pytest.mark.embedded_only("it is shut down")
async def test_shutdown_ends_open_watches_at_once() -> None:
    async with aiohttp.ClientSession() as session:
        async with EmbeddedCluster() as cluster:
            api = Api(session, cluster.url)
            watch = api.watch(PODS, resourceVersion=await revision(api))
            frames = await watch.__aenter__()
        assert await frames.next() is None
        await watch.__aexit__(None, None, None)
