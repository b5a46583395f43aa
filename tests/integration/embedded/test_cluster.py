"""The cluster as Python users have it."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
import yaml

from aliquot.embedded import EmbeddedCluster, StatusError
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.embedded.api.resources import PODS as PODS_RESOURCE
from tests.integration.embedded.client import PODS, Api, names, pod

pytestmark = pytest.mark.embedded_only("it is about starting and stopping it")


async def test_the_kubeconfig_names_the_address(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    written = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    assert written["clusters"][0]["cluster"]["server"] == cluster.url
    assert written["current-context"] == written["contexts"][0]["name"]
    assert [path.name for path in tmp_path.iterdir()] == ["kubeconfig"]


async def test_there_is_no_address_before_the_start() -> None:
    with pytest.raises(RuntimeError, match="not running"):
        _ = EmbeddedCluster().url


async def test_the_first_namespaces_are_there(api: Api) -> None:
    listed = (await api.get("/api/v1/namespaces")).expect(200)
    assert names(listed) == ["default", "kube-node-lease", "kube-public", "kube-system"]


async def test_the_registry_follows_the_same_rules(cluster: EmbeddedCluster, api: Api) -> None:
    created = cluster.registry.create(PODS_RESOURCE, "default", pod())
    assert (await api.get(f"{PODS}/web")).expect(200) == created.obj
    with pytest.raises(StatusError, match="already exists"):
        cluster.registry.create(PODS_RESOURCE, "default", pod())
    cluster.registry.delete(PODS_RESOURCE, "default", "web", DeleteRequest())
    assert cluster.store.snapshot(PODS_RESOURCE.collection) == []


async def test_nothing_runs_after_the_end() -> None:
    before = asyncio.all_tasks()
    async with EmbeddedCluster() as cluster, aiohttp.ClientSession() as session:
        api = Api(session, cluster.url)
        async with api.watch(PODS) as frames:
            await api.post(PODS, pod())
            assert await frames.names(1) == [("ADDED", "web")]
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_two_clusters_do_not_share_anything(cluster: EmbeddedCluster) -> None:
    async with EmbeddedCluster() as other:
        other.registry.create(PODS_RESOURCE, "default", pod())
        assert other.url != cluster.url
        assert cluster.store.snapshot(PODS_RESOURCE.collection) == []


async def test_concurrent_writers_lose_no_update(api: Api) -> None:
    (await api.post(PODS, pod())).expect(201)

    async def add_label(number: int) -> None:
        while True:
            current = (await api.get(f"{PODS}/web")).expect(200)
            current["metadata"].setdefault("labels", {})[f"l{number}"] = "x"
            if (await api.put(f"{PODS}/web", current)).code == 200:
                return

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(add_label(number))
    labels = (await api.get(f"{PODS}/web")).expect(200)["metadata"]["labels"]
    assert set(labels) == {f"l{number}" for number in range(8)}
