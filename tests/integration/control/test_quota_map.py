"""Quotas come from a ConfigMap and are in force as it changes; one that cannot be read keeps the last good ones."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from aliquot import metrics
from aliquot.control import ControlPlane
from aliquot.control.leadership.rights import ONLY_ONE
from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.endpoints.asgi import Call
from aliquot.endpoints.metrics import routes
from aliquot.errors import NoRoom
from aliquot.kube import Access, Client, Informer
from aliquot.kube.resources import ConfigMap
from aliquot.model import Pod
from tests.fakes import Embedded, FakeClock, ScriptedApi, answer, until
from tests.integration.room import Room
from tests.settings import server_config

ACCOUNT = "system:serviceaccount:kube-system:original"
NO_MAPS = [
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
]
MAPS = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}
BAD = '{"default": {"quota": {"T4": "many"}}}'


def quota_of(namespace: str = "default", **cards: int) -> str:
    return json.dumps({namespace: {"quota": cards}})


def put_map(api: ScriptedApi, name: str, data: dict[str, str], namespace: str = "kube-system") -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
    if api.store.get("configmaps", (namespace, name)) is None:
        api.registry.create(resources.CONFIG_MAPS, namespace, {**manifest, "data": data})
    else:
        api.registry.rewrite(resources.CONFIG_MAPS, namespace, name, lambda now: {**now, "data": data})


async def is_seen(api: ScriptedApi, informer: Informer[ConfigMap], name: str, namespace: str = "kube-system") -> None:
    """Return when an informer has a ConfigMap as it is."""

    def same() -> bool:
        held, cached = api.store.get("configmaps", (namespace, name)), informer.get(f"{namespace}/{name}")
        version = cached.metadata.resource_version if cached else ""
        return version == (str(held.revision) if held else "")

    await until(same, f"ConfigMap {name} is seen")


async def write_quota(room: Room, text: str, key: str = "gpu_quota") -> None:
    """Somebody applies the ConfigMap; returns when it was read, good or bad."""
    put_map(room.api, "gpuquota", {key: text})
    await is_seen(room.api, room.plane.quota_map.informer, "gpuquota")


def quota_is_valid() -> float | None:
    return metrics.REGISTRY.get_sample_value("aliquot_quota_valid")


async def refuses(room: Room, pod: Pod) -> bool:
    """Whether the quota is in the way."""
    try:
        await room.commit(pod, "n1")
    except NoRoom as error:
        return "quota" in str(error).lower()
    return False


async def test_a_quota_is_in_force_as_soon_as_it_is_written(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod("p", 15)
    await write_quota(room, quota_of(T4=0))
    assert await refuses(room, pod)
    await write_quota(room, quota_of(T4=1))
    assert not await refuses(room, pod)
    assert room.used() == {0: 15}


async def test_a_quota_is_for_its_namespace_alone(room: Room) -> None:
    await room.add_node()
    await write_quota(room, quota_of("team", T4=0))
    assert not await refuses(room, await room.add_pod())


@pytest.mark.parametrize("label", ["gaia.tencent.com/gpu-pool", "tkestack.io/gpu-pool"])
async def test_the_pool_is_read_from_either_family_of_labels(room: Room, label: str) -> None:
    cards = await room.add_node()
    await write_quota(room, json.dumps({"default": {"quota": {"T4": 2}, "pool": ["public"]}}))
    pod = await room.add_pod()
    assert room.plane.cluster.cards("n1").pool == ""
    with pytest.raises(NoRoom):
        await room.commit(pod, "n1")
    room.api.registry.rewrite(
        resources.NODES,
        "",
        cards.node,
        lambda now: {**now, "metadata": {**now["metadata"], "labels": {label: "public"}}},
    )
    await room.in_sync()
    await room.commit(pod, "n1")
    assert room.used() == {0: 3}


async def test_without_the_config_map_there_are_no_quotas(room: Room) -> None:
    await room.add_node()
    await write_quota(room, quota_of(T4=0))
    room.api.registry.delete(resources.CONFIG_MAPS, "kube-system", "gpuquota", DeleteRequest())
    await is_seen(room.api, room.plane.quota_map.informer, "gpuquota")
    assert not await refuses(room, await room.add_pod())
    assert room.plane.notes() == [f"This server runs alone, without Lease and epoch; {ONLY_ONE}."]


BAD_MAPS = [
    pytest.param("gpu_quota", "{", "is not JSON", id="no JSON"),
    pytest.param("gpu_quota", BAD, "namespace 'default', quota, 'T4': 'many' is not a whole number", id="no number"),
    pytest.param("quotas", quota_of(T4=1), "there is no key gpu_quota", id="another key"),
]


@pytest.mark.parametrize(("key", "text", "why"), BAD_MAPS)
async def test_a_bad_map_keeps_the_last_good_quotas_and_is_told_of_once(
    room: Room, key: str, text: str, why: str
) -> None:
    await room.add_node()
    await write_quota(room, quota_of(T4=0))
    assert quota_is_valid() == 1
    with capture_logs() as logs:
        await write_quota(room, text, key)
        put_map(room.api, "gpuquota", {key: text, "more": "x"})
        await is_seen(room.api, room.plane.quota_map.informer, "gpuquota")
    (told,) = [line for line in logs if line["event"] == "cannot use the quotas"]
    assert why in told["why"]
    (note,) = room.plane.notes()[1:]
    assert note.startswith("the quotas in ConfigMap kube-system/gpuquota cannot be used: ")
    assert why in note
    assert quota_is_valid() == 0
    assert room.plane.not_ready() == []
    assert await refuses(room, await room.add_pod())
    await write_quota(room, quota_of(T4=1))
    assert quota_is_valid() == 1
    assert room.plane.notes()[1:] == []


async def test_a_bad_first_map_blocks_nothing(scripted: ScriptedApi, client: Client, clock: FakeClock) -> None:
    put_map(scripted, "gpuquota", {"gpu_quota": BAD})
    async with Room(scripted, client, clock) as room:
        await room.add_node()
        assert "no quota is in force" in room.plane.notes()[1]
        assert not await refuses(room, await room.add_pod())


async def test_the_quota_is_known_before_the_first_pod_is_judged(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    put_map(scripted, "gpuquota", {"gpu_quota": quota_of(T4=0)})
    async with Room(scripted, client, clock) as room:
        assert room.plane.cluster.quotas.entries.keys() == {"default"}


async def test_an_api_server_that_fails_on_config_maps_blocks_no_start(
    scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    scripted.script("GET", "kube-system/configmaps", *[answer(500)] * 4)
    async with Room(scripted, client, clock) as room:
        assert any("no quota is in force: cannot read configmaps" in note for note in room.plane.notes())
        put_map(scripted, "gpuquota", {"gpu_quota": quota_of(T4=0)})
        await until(lambda: room.plane.cluster.quotas.entries, passing=clock)


async def test_map_and_key_can_be_elsewhere(scripted: ScriptedApi, client: Client, clock: FakeClock) -> None:
    place = server_config(lease__enabled=False, quota__namespace="default", quota__name="limits", quota__key="gpus")
    put_map(scripted, "limits", {"gpus": quota_of(T4=0)}, "default")
    async with running(ControlPlane(client, clock, settings=place)) as plane:
        assert plane.cluster.quotas.entries.keys() == {"default"}


async def test_what_is_used_of_each_quota_can_be_seen(room: Room) -> None:
    await room.add_node()
    limits = {"quota": {"T4": 2}, "memory": {"T4": "15Gi"}, "cores": {"T4": 150}}
    await write_quota(room, json.dumps({"default": limits, "team": {"quota": {"T4": 1}}}))
    await room.commit(await room.add_pod("p", 3), "n1")
    (call,) = [answer for (_, path), answer in routes(room.plane).items() if path == "/metrics"]
    shown = (await call(Call())).body.decode()
    assert 'aliquot_quota_used{measure="cards",model="T4",namespace="default"} 0.2' in shown
    assert f'aliquot_quota_used{{measure="memory",model="T4",namespace="default"}} {3 * 2.0**30!r}' in shown
    assert f'aliquot_quota_limit{{measure="memory",model="T4",namespace="default"}} {15 * 2.0**30!r}' in shown
    assert 'aliquot_quota_limit{measure="cores",model="T4",namespace="default"} 1.5' in shown
    assert 'aliquot_quota_used{measure="cards",model="T4",namespace="team"} 0.0' in shown
    room.api.registry.delete(resources.CONFIG_MAPS, "kube-system", "gpuquota", DeleteRequest())
    await is_seen(room.api, room.plane.quota_map.informer, "gpuquota")
    assert "aliquot_quota_used{" not in (await call(Call())).body.decode()


async def test_only_the_one_config_map_is_asked_for(room: Room) -> None:
    asked = [seen.query for seen in room.api.seen if seen.path.endswith("/kube-system/configmaps")]
    assert any("fieldSelector=metadata.name%3Dgpuquota" in query for query in asked)


async def test_quotas_of_very_many_namespaces_are_shown_of_those_that_use_most(room: Room) -> None:
    await room.add_node()
    names = [*(f"idle-{number}" for number in range(2500)), "default"]
    await write_quota(room, json.dumps({name: {"quota": {"T4": 1}} for name in names}))
    await room.commit(await room.add_pod("p", 3), "n1")
    (call,) = [answer for (_, path), answer in routes(room.plane).items() if path == "/metrics"]
    shown = (await call(Call())).body.decode()
    assert shown.count("aliquot_quota_used{") == shown.count("aliquot_quota_limit{") == 2000
    assert 'aliquot_quota_used{measure="cards",model="T4",namespace="default"} 0.2' in shown
    assert "aliquot_quota_hidden_limits 501.0" in shown


async def test_a_server_that_cannot_follow_the_map_any_more_says_that_the_last_quotas_stay(room: Room) -> None:
    await room.add_node()
    await write_quota(room, quota_of(T4=0))
    room.api.script("GET", "configmaps.*gpuquota", *[answer(500)] * 4)
    room.api.cut_watches("configmaps")
    await until(lambda: room.plane.quota_map.notes(), passing=room.clock)
    (note,) = room.plane.quota_map.notes()
    assert note.startswith(
        "ConfigMap kube-system/gpuquota: the last known ones stay in force: cannot read configmaps: "
    )
    assert await refuses(room, await room.add_pod())
    await until(lambda: not room.plane.quota_map.notes(), passing=room.clock)


# -- with fewer rights


@contextlib.asynccontextmanager
async def running(plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    task = asyncio.create_task(plane.run())
    await until(lambda: not plane.not_ready(), "it is ready")
    yield plane
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_without_the_right_to_read_config_maps_it_starts_and_says_which_rule_to_add(clock: FakeClock) -> None:
    embedded = Embedded()
    embedded.cluster.users.add(ACCOUNT, token="secret", rules=NO_MAPS)
    async with (
        ScriptedApi(embedded) as scripted,
        Client(Access(scripted.url, token="secret")) as client,
        running(ControlPlane(client, clock, settings=server_config(lease__enabled=False))) as plane,
    ):
        quota, unhealthy = (note for note in plane.notes() if "configmaps" in note)
        assert quota == (
            "may not list configmaps in namespace kube-system: no quota is in force; the rule to add: "
            '- {apiGroups: [""], resources: [configmaps], resourceNames: [gpuquota], verbs: [list, watch]}'
        )
        assert unhealthy.endswith('the rule to add: - {apiGroups: [""], resources: [configmaps], verbs: [list, watch]}')
        put_map(scripted, "gpuquota", {"gpu_quota": quota_of(T4=0)})
        embedded.cluster.users.add(ACCOUNT, token="secret", rules=[*NO_MAPS, MAPS])
        await until(lambda: plane.cluster.quotas.entries, "it looks again", passing=clock)
        assert not [note for note in plane.notes() if "configmaps" in note]
        embedded.cluster.users.add(ACCOUNT, token="secret", rules=NO_MAPS)
        scripted.cut_watches("configmaps")
        await until(lambda: "rule to add" in "".join(plane.quota_map.notes()), "it notices", passing=clock)
        (note,) = plane.quota_map.notes()
        assert "ConfigMap kube-system/gpuquota: the last known ones stay in force: " in note
        assert note.endswith("resourceNames: [gpuquota], verbs: [list, watch]}")
        assert plane.cluster.quotas.entries
