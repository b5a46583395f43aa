"""The demo's world: an embedded cluster, hollow nodes with the real agent, the control plane and our own scheduler."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from aliquot import agent
from aliquot.control import ControlPlane
from aliquot.dialects import standard_dialects
from aliquot.doors import health
from aliquot.doors.asgi import Routes
from aliquot.doors.gpushare import GpuShareDoor
from aliquot.doors.listener import Listener
from aliquot.doors.scheduler import Scheduler
from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.gpus import SimulatedNvml
from aliquot.embedded.hollow import HollowNode
from aliquot.errors import BadConfig
from aliquot.kube import Access, Client

HARDWARE: Mapping[str, Sequence[str]] = {
    "gpu-1": ("Tesla T4", "Tesla T4"),
    "gpu-2": ("NVIDIA A100-SXM4-80GB",),
}


class World:
    """Everything in one process on loopback. `folder` holds sockets, so its path must be short."""

    def __init__(
        self,
        folder: Path,
        hardware: Mapping[str, Sequence[str]] = HARDWARE,
        *,
        api_port: int = 0,
        gpushare_port: int = 0,
    ) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.cluster = EmbeddedCluster(port=api_port, logs=self._what_it_would_find)
        self.nodes: dict[str, HollowNode] = {}
        self.dialects = [standard_dialects()[name] for name in agent.Settings.dialects]
        """Those that the agents of its nodes serve."""
        self._folder = folder
        self._hardware = hardware
        self._gpushare_port = gpushare_port
        self._stack = AsyncExitStack()
        self.life: asyncio.Task[None]
        """Ends only if something fails, and then with its error."""

    async def __aenter__(self) -> "World":
        async with AsyncExitStack() as stack:
            await self._listen(stack)
            self.cluster.write_kubeconfig(self.kubeconfig)
            self.client = await stack.enter_async_context(Client(Access(self.cluster.url)))
            self.plane = ControlPlane(self.client)
            routes = Routes({**GpuShareDoor(self.plane).routes(), **health.routes(self.plane)})
            self.door = await stack.enter_async_context(Listener(routes, "127.0.0.1", self._gpushare_port))
            for name in self._hardware:
                node = HollowNode(name, self.client, self._folder / name, labels={"gpushare": "true"})
                self.nodes[name] = await stack.enter_async_context(node)
            self.life = asyncio.create_task(self._live())
            stack.push_async_callback(self._end)
            await self.until(self._nodes_offer_their_cards)
            self._stack = stack.pop_all()
        return self

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something in the cluster; ends with the world's error if that fails first."""
        changed = asyncio.Event()
        self.plane.on_change(changed.set)
        while not condition():
            changed.clear()
            waiting = asyncio.ensure_future(changed.wait())
            await asyncio.wait({waiting, self.life}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if self.life.done():
                await self.life

    def _what_it_would_find(self, pod: Mapping[str, Any]) -> str:
        """`kubectl logs`: there is no process, but what one would find in its container is known."""
        lines = ["This container is simulated. A real one would find in it:"]
        for node in self.nodes.values():
            for (uid, container), inside in node.inside.items():
                if uid == pod["metadata"]["uid"]:
                    variables = [f"{name}={value}" for name, value in sorted(inside.environment.items())]
                    lines += [f"[{container}] {found}" for found in (*variables, *inside.devices)]
        return "\n".join(lines) + "\n"

    def _nodes_offer_their_cards(self) -> bool:
        nodes = {node.key: node.status.allocatable or {} for node in self.plane.nodes.all()}
        wanted = {dialect.resource for dialect in self.dialects}
        return all(name in nodes and wanted <= nodes[name].keys() for name in self._hardware)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def _listen(self, stack: AsyncExitStack) -> None:
        try:
            await stack.enter_async_context(self.cluster)
        except OSError as error:
            raise BadConfig(f"the API server of the demo cannot listen: {error.strerror}") from error

    async def _live(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.plane.run())
            tasks.create_task(self.door.lives())
            tasks.create_task(Scheduler(self.plane, serves=lambda _: True).run())
            for name, models in self._hardware.items():
                tasks.create_task(self.nodes[name].run())
                tasks.create_task(self._run_agent(name, models))

    async def _run_agent(self, name: str, models: Sequence[str]) -> None:
        nvml = SimulatedNvml(name, models)
        devices = self._folder / name / "dev"
        nvml.make_device_nodes(devices)
        node = self.nodes[name]
        settings = agent.Settings(
            node=name,
            device_plugins=node.devices.folder,
            pod_resources=node.devices.pod_resources,
            runtime_endpoint=None,
            cdi_folder=node.cdi_folder,
            devices=devices,
        )
        await agent.run(settings, self.client, nvml)

    async def _end(self) -> None:
        self.life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.life
