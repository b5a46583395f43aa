"""A simulated GPU machine and the real `aliquot agent` on it, in a process of its own.

Below the agent is the rig's fake NVML library, under the real nvidia-ml-py. API server, kubelet and container runtime
are simulated, in the caller's process; the agent reaches the API server by TLS.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from aliquot.dialects import demand_of, placed_on, standard_dialects
from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api import resources
from aliquot.embedded.gpus import SimulatedGpus
from aliquot.embedded.nodes import AgentDevices, HollowNodes
from aliquot.kube import Access, Client
from aliquot.model import NodeGpus, Pod
from aliquot.model.records import INVENTORY, NODE_LEASES, PLACEMENT, read_inventory, write_placement
from bench.handing_over.tls_front import tls_front
from tests.factories import pod_manifest
from tests.fakes import FakeRuntime
from tests.rig import FakeNvml, Gpu, GpuProcess, Process, nvml

_NODE = "gpu-1"
_SERVED = ("gpushare", "aliquot")
_MIB = 81920
_PATIENCE_SECONDS = 60.0
_DIALECTS = standard_dialects()


class Machine:
    def __init__(self, cluster: EmbeddedCluster, nodes: HollowNodes, agent: Process) -> None:
        self.agent = agent
        self._cluster = cluster
        self._nodes = nodes

    async def start_pods(self, names: Sequence[str]) -> None:
        """Bind pods of both dialects in turn, each to a part of the next card, and wait until all of them run."""
        cards = self._cards()
        for place, name in enumerate(names):
            body = _placed(name, cards, place)
            self._cluster.registry.create(resources.PODS, "default", body)
        await self._until(lambda: all(self._runs(name) for name in names), "every pod runs")

    async def until_ready(self) -> None:
        """Until kubelet knows the plugins of both dialects, and the inventory is published."""
        devices = self._nodes[_NODE].devices
        wanted = {_DIALECTS[name].resource for name in _SERVED}

        def serves() -> bool:
            return all(devices.capacity().get(resource) for resource in wanted) and bool(self._inventory())

        await self._until(serves, "the agent serves")

    def _cards(self) -> NodeGpus:
        return read_inventory(_NODE, self._inventory())

    def _inventory(self) -> str:
        node = self._cluster.registry.get(resources.NODES, "", _NODE).obj
        return str(node["metadata"].get("annotations", {}).get(INVENTORY, ""))

    def _runs(self, name: str) -> bool:
        pod = self._cluster.registry.get(resources.PODS, "default", name).obj
        return bool(pod.get("status", {}).get("phase") == "Running")

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        for _ in range(int(_PATIENCE_SECONDS / 0.1)):
            if condition():
                return
            if not self.agent.running:
                break
            await asyncio.sleep(0.1)
        raise AssertionError(
            f"not so after {_PATIENCE_SECONDS:g} s: {what}; the agent says {self.agent.log.read_text()}"
        )


@asynccontextmanager
async def machine(folder: Path, cards: int, pids: Sequence[int]) -> AsyncIterator[Machine]:
    """Processes with these PIDs use the cards."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(EmbeddedCluster())
        cluster.registry.create(resources.NAMESPACES, "", {"metadata": {"name": NODE_LEASES}})
        client = await stack.enter_async_context(Client(Access(cluster.url)))
        nodes = await stack.enter_async_context(HollowNodes(client, dialects=_DIALECTS))
        devices = await nodes.add_with_agent(_NODE, SimulatedGpus(_NODE, ()), folder / "kubelet", _SERVED)
        config = msgspec.json.encode({"enableCDI": True, "cdiSpecDirs": [str(devices.cdi_folder)]}).decode()
        await stack.enter_async_context(FakeRuntime(folder / "cri.sock", {"config": config}))
        running = asyncio.create_task(nodes.run())
        stack.push_async_callback(_end, running)
        kubeconfig = folder / "kubeconfig"
        await stack.enter_async_context(tls_front(cluster.url, kubeconfig))
        agent = _agent(folder, cards, pids, kubeconfig, devices)
        agent.start()
        stack.callback(agent.kill)
        made = Machine(cluster, nodes, agent)
        await made.until_ready()
        yield made


def _agent(folder: Path, cards: int, pids: Sequence[int], kubeconfig: Path, devices: AgentDevices) -> Process:
    dev, library = folder / "dev", folder / "nvml"
    for path in (dev, library):
        path.mkdir()
    gpus = [Gpu(f"GPU-00000000-0000-4000-8000-{n:012x}", n, _MIB, "NVIDIA A100-SXM4-80GB") for n in range(cards)]
    for gpu in gpus:
        (dev / f"nvidia{gpu.minor}").touch()
    nvml.build(library)
    driver = FakeNvml(library, gpus)
    driver.replace_processes(GpuProcess(place % cards, pid, 64, 1) for place, pid in enumerate(pids))
    flags = {
        "--kubeconfig": kubeconfig,
        "--node-name": _NODE,
        "--device-plugins": devices.manager.folder,
        "--pod-resources": devices.manager.pod_resources,
        "--runtime-endpoint": f"unix://{folder / 'cri.sock'}",
        "--cdi-folder": devices.cdi_folder,
        "--dev-folder": dev,
    }
    said = [f"{flag}={value}" for flag, value in flags.items()] + [f"--dialect={name}" for name in _SERVED]
    return Process(
        "agent",
        [sys.executable, "-m", "aliquot", "agent", *said],
        log=folder / "agent.log",
        env=driver.environment(),
    )


def _placed(name: str, cards: NodeGpus, place: int) -> dict[str, Any]:
    """A bound pod with its placement: gpushare and native in turns."""
    if place % 2:
        manifest = {**_DIALECTS["aliquot"].sample_pod()}
        annotations = {**manifest["metadata"]["annotations"], "aliquot.io/cores": "4", "aliquot.io/memory": "2Gi"}
        manifest["metadata"] = {"name": name, "namespace": "default", "annotations": annotations}
    else:
        manifest = pod_manifest(name, 2)
        annotations = {}
    pod = msgspec.convert(manifest, Pod)
    demand = demand_of(pod, _DIALECTS)
    assert demand is not None, "both ask for cards"
    gpu = cards.gpus[place // 2 % len(cards.gpus)]
    placement = placed_on(demand.request, {own.name: [gpu] for own in demand.request.containers}, cards)
    own = demand.dialect.annotations(pod, demand.request, placement, cards, 1)
    annotations = {**annotations, PLACEMENT: write_placement(placement), **own}
    metadata = {**manifest["metadata"], "annotations": annotations}
    return {**manifest, "metadata": metadata, "spec": {**manifest["spec"], "nodeName": _NODE}}


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
