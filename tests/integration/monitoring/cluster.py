"""A server and an agent that have something to show in every metric that dashboards ask for."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pynvml

from aliquot import agent
from aliquot.agent.nvidia import NvidiaDevices
from aliquot.control.waiting.schedule import FIRST_SECONDS
from aliquot.embedded.api import resources
from aliquot.embedded.kubelet_devices import DeviceManager
from aliquot.embedded.programs import container_id
from aliquot.endpoints import metrics
from aliquot.endpoints.asgi import Routes
from aliquot.endpoints.gpushare import GpuShareEndpoint
from aliquot.kube import LEASES, PODS
from aliquot.model.bounds import MIB
from aliquot.model.load import LOAD, CardLoad, NodeLoad, PodLoad, write_load
from aliquot.model.records import NODE_LEASES
from aliquot.reports.of_plane import leaders_verdict
from tests.factories import container_manifest, make_cards, node_manifest, pod_manifest
from tests.fakes import SECONDS, until
from tests.fakes.nvml import SWITCH, FakeCard, FakeNvml, FakeProcess
from tests.fakes.proc import FakeProc
from tests.integration.agent.test_agent import settings
from tests.integration.endpoints.endpoint import FILTER, Endpoint
from tests.integration.endpoints.serving import served
from tests.integration.endpoints.volcano import manifest_of
from tests.integration.room import Room
from tests.ports import free_port

UNIT = 1024 * MIB
BUSY, BROKEN = "GPU-busy", "GPU-broken"
COUNTED = {
    pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: 5_000_000,
    pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL: 3,
    pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL: 1,
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: 2000,
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: 1000,
    pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL: 4,
}
"""What the busy card counts at first: millijoules, errors, KiB."""
SPENT_JOULES = 100
"""What it uses afterwards."""
USER = "user"
CONTAINERS = {"left": (4711, 600, 30), "right": (4712, 200, 10)}
"""The process of each container of that pod on the busy card: PID, MiB, percent of the cores."""


@asynccontextmanager
async def shown_cluster(room: Room, folder: Path) -> AsyncIterator[dict[str, str]]:
    """Yields where the server and the agent serve their metrics, by job."""
    routes = Routes({**GpuShareEndpoint(room.plane).routes(), **metrics.routes(room.plane)})
    async with running_agent(room, folder) as agents, served(routes) as url, aiohttp.ClientSession() as session:
        await _tenants(room, Endpoint(session, url, room))
        yield {"aliquot": urlsplit(url).netloc, "aliquot-agent": agents}


@asynccontextmanager
async def running_agent(room: Room, folder: Path) -> AsyncIterator[str]:
    """An agent on n1 whose driver shows a busy card with two containers on it, and a card that has fallen off the
    bus."""
    busy = FakeCard(BUSY, util=42, used_mib=1000, watts=70.5, celsius=61, bus=1, mhz=(1410, 1215))
    busy.nvlinks, busy.counts = [SWITCH, SWITCH, ""], dict(COUNTED)
    busy.processes = [FakeProcess(pid, mib, percent=percent) for pid, mib, percent in CONTAINERS.values()]
    broken = FakeCard(BROKEN, util=0, watts=10.0, celsius=30, minor=1, bus=2)
    nvml = FakeNvml(busy, broken)
    devices = NvidiaDevices(folder, nvml=nvml, proc=folder, sysfs=folder, wait=nvml.wait, processes_every=0)
    room.api.registry.create(resources.NODES, "", node_manifest("n1"))
    room.api.registry.create(resources.NAMESPACES, "", {"metadata": {"name": NODE_LEASES}})
    await _pod_with_processes(room, FakeProc(folder / "proc"))
    port = free_port()
    config = settings(folder, health_port=port, host_root=folder)
    async with DeviceManager(folder / "device-plugins"):
        task = asyncio.create_task(agent.run(config, room.client, devices, room.clock))
        await until(lambda: nvml.registered, "the agent waits for errors of its cards")
        nvml.report(broken, 79)
        where = f"127.0.0.1:{port}"
        async with aiohttp.ClientSession() as session:
            await _until_page(room, session, where, 'xid="79"')
            await _until_page(room, session, where, "\naliquot_container_energy_joules_total{")
            busy.counts[pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION] += SPENT_JOULES * 1000
            await _until_page(room, session, where, f'container="left",uuid="{BUSY}"}} 30')
        try:
            yield where
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _until_page(room: Room, session: aiohttp.ClientSession, where: str, text: str) -> None:
    async with asyncio.timeout(SECONDS):
        while text not in await _page(session, where):
            await room.clock.move(1)


async def _pod_with_processes(room: Room, proc: FakeProc) -> None:
    """The pod whose containers have the processes that the driver lists."""
    containers = [container_manifest(name, None) for name in CONTAINERS]
    made = await room.put_pod(pod_manifest(USER, namespace="kube-system", node="n1", containers=containers))
    uid = made["metadata"]["uid"]
    for name, (pid, _, _) in CONTAINERS.items():
        proc.write(pid, f"/kubepods/pod{uid}/{container_id(uid, name)}")
    statuses = [
        {"name": name, "containerID": f"containerd://{container_id(uid, name)}", "state": {"running": {}}}
        for name in CONTAINERS
    ]
    status = {"status": {"phase": "Running", "containerStatuses": statuses}}
    await room.client.patch(PODS, USER, status, namespace="kube-system", part="status")


async def _page(session: aiohttp.ClientSession, where: str) -> str:
    async with session.get(f"http://{where}/metrics") as answer:
        return await answer.text()


async def _tenants(room: Room, endpoint: Endpoint) -> None:
    """Two pods on n2, which report what they use, a quota, and pods that wait."""
    limits = {"default": {"quota": {"T4": 2}}}
    quotas = {"metadata": {"name": "gpuquota", "namespace": "kube-system"}, "data": {"gpu_quota": json.dumps(limits)}}
    room.api.registry.create(resources.CONFIG_MAPS, "kube-system", quotas)
    await until(lambda: room.plane.cluster.quotas.entries, "the quota is seen")
    await room.add_node(make_cards("n2", mib=(15360,)))
    for name, units in (("trains", 3), ("idles", 6)):
        pod = await room.add_pod(name, units)
        await endpoint.pass_filter(pod, "n2")
        assert await endpoint.bind(pod, "n2") == ""
    waits = await room.add_pod("waits", 99)
    await endpoint.post(FILTER, {"Pod": manifest_of(waits), "NodeNames": ["n2"]})
    await room.clock.move(FIRST_SECONDS)
    await room.plane.waiting_reasons.look(partial(leaders_verdict, room.plane))
    for beat in (1, 2):
        await _beat(room, beat)


async def _beat(room: Room, number: int) -> None:
    cluster, heartbeats = room.plane.cluster, room.plane.heartbeats
    (uuid,) = (gpu.uuid for gpu in cluster.cards("n2").gpus)
    (trains,) = (entry.uid for entry in cluster.ledger.entries("n2") if entry.owner.pod == "default/trains")
    load = NodeLoad(float(number), {uuid: CardLoad(0.5, UNIT)}, {trains: {uuid: PodLoad(UNIT, 0.5)}})
    spec = {"leaseDurationSeconds": 60, "renewTime": f"2026-01-01T00:00:00.{number:06}Z"}
    metadata = {"name": "n2", "namespace": NODE_LEASES, "annotations": {LOAD: write_load(load)}}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    if number == 1:
        await room.client.create(LEASES, body, NODE_LEASES)
    else:
        await room.client.patch(LEASES, "n2", body, namespace=NODE_LEASES)

    def is_seen() -> bool:
        lease = heartbeats.leases.get(f"{NODE_LEASES}/n2")
        return lease is not None and lease.metadata.annotations[LOAD] == write_load(load)

    await until(is_seen, "the Lease is seen")
