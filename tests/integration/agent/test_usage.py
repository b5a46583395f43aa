"""The agent tells who uses its cards: in its metrics, and in the node's Lease with each heartbeat."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from aliquot import agent
from aliquot.agent.heartbeat import Heartbeat
from aliquot.agent.nvidia.exporters import EXPORTERS
from aliquot.embedded.api import resources
from aliquot.embedded.gpus import SimulatedGpus
from aliquot.embedded.kubelet_devices import DeviceManager
from aliquot.embedded.programs import container_id
from aliquot.kube import PODS, Client
from aliquot.model import Pod, Slice
from aliquot.model.load import LOAD, CardLoad, NodeLoad, read_load
from aliquot.model.records import NODE_LEASES
from tests.factories import node_manifest, pod_manifest
from tests.fakes import SECONDS, FakeClock, ScriptedApi, until
from tests.integration.agent.test_agent import settings
from tests.ports import free_port

pytestmark = pytest.mark.embedded_only("time is moved by hand")


@pytest.fixture(autouse=True)
def namespace(scripted: ScriptedApi) -> None:
    scripted.registry.create(resources.NAMESPACES, "", {"metadata": {"name": NODE_LEASES}})


def lease(api: ScriptedApi) -> Any:
    found = [stored.obj for stored in api.store.snapshot(resources.LEASES.collection)]
    return found[0] if found else {}


def load(api: ScriptedApi) -> NodeLoad | None:
    text = lease(api).get("metadata", {}).get("annotations", {}).get(LOAD)
    return read_load(text) if text else None


# -- the heartbeat


async def test_a_beat_is_one_write_with_the_load(scripted: ScriptedApi, client: Client, clock: FakeClock) -> None:
    measured: list[NodeLoad] = []
    heartbeat = Heartbeat(client, "n1", clock, lambda: measured[-1] if measured else None)
    await heartbeat.beat()
    assert load(scripted) is None
    for at in (1.0, 2.0):
        measured.append(NodeLoad(at, {"GPU-1": CardLoad(0.5, 1024, 70.0)}))
        before = len(scripted.seen)
        await heartbeat.beat()
        assert [seen.method for seen in scripted.seen[before:]] == ["PATCH"]
        assert load(scripted) == measured[-1]
    assert lease(scripted)["spec"]["holderIdentity"] == "n1"


async def test_a_lease_that_is_made_again_has_the_load(scripted: ScriptedApi, client: Client, clock: FakeClock) -> None:
    known = NodeLoad(1.0, {"GPU-1": CardLoad(0.5)})
    await Heartbeat(client, "n1", clock, lambda: known).beat()
    assert load(scripted) == known


async def test_beats_come_with_jitter(client: Client, clock: FakeClock) -> None:
    task = asyncio.create_task(Heartbeat(client, "n1", clock).run())
    await until(lambda: len(clock.asked) >= 20, passing=clock)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    first, *others = clock.asked
    assert first < 10 <= min(others) < max(others) <= 30
    assert len(set(others)) > 10


# -- the agent


@pytest.fixture
async def kubelet(folder: Path) -> AsyncIterator[DeviceManager]:
    async with DeviceManager(folder / "device-plugins") as running:
        yield running


@pytest.mark.usefixtures("kubelet")
async def test_two_pods_on_one_card_are_told_apart_and_vanish_when_they_end(
    folder: Path, scripted: ScriptedApi, client: Client, clock: FakeClock
) -> None:
    scripted.registry.create(resources.NODES, "", node_manifest("n1"))
    gpus, port = SimulatedGpus("n1", ["Tesla T4"] * 2), free_port()
    card = gpus.read().gpus[0]
    part = Slice(card.uuid, 0, 0, cores=50, mib=1000)
    pods = {name: await _running_pod(client, name) for name in ("a", "b")}
    for name, percent in (("a", 20), ("b", 30)):
        gpus.programs.start(pods[name], "main", [part], percent)

    async def shown(metric: str) -> dict[str, float]:
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        own = [line for line in lines if line.startswith(f"{metric}{{") and card.uuid in line]
        return {line.partition('pod="')[2][0]: float(line.split()[-1]) for line in own}

    async def until_shown(metric: str, values: dict[str, float]) -> None:
        async with asyncio.timeout(SECONDS):
            while await shown(metric) != values:
                await clock.move(1)

    config = settings(folder, health_port=port, exporters=("hami",))
    running = agent.run(config, client, gpus, clock, owners=gpus.programs, exporters=EXPORTERS)
    task = asyncio.create_task(running)
    try:
        await until(lambda: load(scripted) is not None, passing=clock)
        await until_shown("aliquot_container_cores_busy_ratio", {"a": 0.2, "b": 0.3})
        await until_shown("hami_container_device_utilization_ratio", {"a": 20, "b": 30})

        def told() -> dict[str, float | None]:
            known = load(scripted)
            return {uid: cards[card.uuid].cores for uid, cards in known.pods.items()} if known else {}

        uids = {name: pod.metadata.uid for name, pod in pods.items()}
        await until(lambda: told() == {uids["a"]: 0.2, uids["b"]: 0.3}, "the Lease tells", passing=clock)
        await client.delete(PODS, "a", "default", grace=0)
        await until_shown("aliquot_container_cores_busy_ratio", {"b": 0.3})
        await until(lambda: told() == {uids["b"]: 0.3}, "the Lease forgets the pod", passing=clock)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _running_pod(client: Client, name: str) -> Pod:
    manifest: dict[str, Any] = pod_manifest(name)
    body = {**manifest, "spec": {**manifest["spec"], "nodeName": "n1"}}
    made = msgspec.convert(msgspec.to_builtins(await client.create(PODS, body, "default")), Pod)
    own_id = f"hollow://{container_id(made.metadata.uid, 'main')}"
    status = {"name": "main", "containerID": own_id, "state": {"running": {}}}
    patch = {"status": {"phase": "Running", "containerStatuses": [status]}}
    await client.patch(PODS, name, patch, namespace="default", part="status")
    return made
