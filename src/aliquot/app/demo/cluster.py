"""The demo's cluster: an embedded API server, hollow nodes, some with the real agent, the control plane and our own
scheduler."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from aliquot import agent
from aliquot.app.demo import admission, namespaces, samples
from aliquot.app.demo.events import EventFeed
from aliquot.app.demo.machines import Machine, plan
from aliquot.clock import came
from aliquot.config.agent_tree import AgentConfig
from aliquot.config.sections.replicas import LeaseSection
from aliquot.control import ControlPlane
from aliquot.control.loops.scheduler import Scheduler
from aliquot.dialects import standard_dialects
from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.gpus import SimulatedGpus
from aliquot.embedded.nodes import AgentDevices, HollowNodes
from aliquot.endpoints import health
from aliquot.endpoints.asgi import Routes
from aliquot.endpoints.gpushare import GpuShareEndpoint
from aliquot.endpoints.listener import Listener
from aliquot.errors import AliquotError, BadConfig
from aliquot.kube import Access, Client
from aliquot.model.records import NODE_LEASES
from aliquot.racing import first_of
from aliquot.reports.of_plane import leaders_verdict

_READ_SECONDS = 0.5
"""How often the agents read their cards: nobody wants to wait for a card that fails and returns."""
_LOOK_SECONDS = 0.5
"""No event tells that the API server answers again, as after a stall of this process."""


class NotStarted(AliquotError):
    """The demo's cluster did not start in time. The text says what is missing."""


class DemoCluster:
    """Runs everything in one process on loopback. `folder` holds sockets, so its path must be short."""

    def __init__(
        self,
        folder: Path,
        machines: Sequence[Machine] | None = None,
        *,
        api_port: int = 0,
        gpushare_port: int = 0,
        patience: float = 60.0,
    ) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.cluster = EmbeddedCluster(port=api_port, logs=self._simulated_logs)
        self.dialects = standard_dialects()
        self.machines = {machine.name: machine for machine in machines or plan(self.dialects)}
        self.gpus = {name: SimulatedGpus(name, machine.models, machine.mig) for name, machine in self.machines.items()}
        self.samples = list(samples.of_machines(self.dialects, self.machines.values()))
        self._folder = folder
        self._api_port, self._gpushare_port = api_port, gpushare_port
        self._patience = patience
        self._stack = AsyncExitStack()
        self.life: asyncio.Task[None]
        """Ends only if a component fails, and then raises its error."""

    async def __aenter__(self) -> "DemoCluster":
        async with AsyncExitStack() as stack:
            await self._listen(stack)
            self.cluster.write_kubeconfig(self.kubeconfig)
            self.client = await stack.enter_async_context(Client(Access(self.cluster.url)))
            home = LeaseSection().namespace
            for namespace in (home, NODE_LEASES):
                await namespaces.ensure(self.client, namespace)
            await admission.install(self.client, self.dialects, home)
            self.plane = ControlPlane(await self._client_of(stack, home, admission.SERVER))
            self.events = EventFeed(self.client)
            routes = Routes({**GpuShareEndpoint(self.plane).routes(), **health.routes(self.plane)})
            self.endpoint = await stack.enter_async_context(Listener(routes, "127.0.0.1", self._gpushare_port))
            self.plane.leadership.advertise({"gpushare": f"http://127.0.0.1:{self.endpoint.port}"})
            kubelets = await self._client_of(stack, home, admission.NODES)
            self.nodes = await stack.enter_async_context(
                HollowNodes(kubelets, dialects=self.dialects, with_leases=True)
            )
            agents = []
            for machine in self.machines.values():
                if (made := await self._add(machine)) is not None:
                    settings, gpus = made
                    agents.append((settings, await self._client_of(stack, home, admission.AGENT, machine.name), gpus))
            self.life = asyncio.create_task(self._live(agents))
            stack.push_async_callback(self._end)
            await self._until_ready()
            self._stack = stack.pop_all()
        return self

    async def _client_of(self, stack: AsyncExitStack, namespace: str, account: str, node: str = "") -> Client:
        return await stack.enter_async_context(Client(admission.access(self.cluster, namespace, account, node)))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds. Raises the error of a component that fails first."""
        with self.plane.changed.as_event() as changed:
            while not condition():
                changed.clear()
                await first_of(came(changed, _LOOK_SECONDS, self.plane.clock), self._lives())

    async def _lives(self) -> None:
        """Wait for the end of `life`. Cancelling the wait does not cancel `life`."""
        await asyncio.shield(self.life)

    def _simulated_logs(self, pod: Mapping[str, Any]) -> str:
        """The answer to `kubectl logs`: no process runs, but the agent's edits to its container are known."""
        lines = [
            "This container is simulated. A real one would find in it:",
            "(A device node's number may differ from the card's index, as on real machines. Go by the UUID.)",
        ]
        for node in self.nodes.values():
            for (uid, container), inside in node.kubelet.inside.items():
                if uid == pod["metadata"]["uid"]:
                    variables = [f"{name}={value}" for name, value in sorted(inside.environment.items())]
                    lines += [f"[{container}] {found}" for found in (*variables, *inside.devices)]
        return "\n".join(lines) + "\n"

    async def _until_ready(self) -> None:
        try:
            await asyncio.wait_for(self.until(lambda: not self._missing()), self._patience)
        except TimeoutError:
            raise NotStarted(f"not ready after {self._patience:g} s: {'; '.join(self._missing())}") from None

    def _missing(self) -> list[str]:
        """Why the control plane cannot commit yet, and the nodes that do not offer their cards yet."""
        nodes = {node.key: node.status.allocatable or {} for node in self.plane.nodes.all()}
        silent = [
            f"{name} does not offer its cards"
            for name, machine in self.machines.items()
            if not {self.dialects[served].resource for served in machine.dialects} <= nodes.get(name, {}).keys()
            or not self.plane.cluster.cards(name).gpus
        ]
        return self.plane.not_ready() + silent

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def _listen(self, stack: AsyncExitStack) -> None:
        try:
            await stack.enter_async_context(self.cluster)
        except OSError as error:
            where = f"127.0.0.1:{self._api_port}"
            raise BadConfig(f"the demo's API server cannot listen on {where}: {error.strerror}") from error

    async def _live(self, agents: Sequence[tuple[AgentConfig, Client, SimulatedGpus]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.plane.run())
            tasks.create_task(self.endpoint.lives())
            tasks.create_task(Scheduler(self.plane, serves=lambda _: True).run())
            tasks.create_task(self.plane.waiting_reasons.run(partial(leaders_verdict, self.plane)))
            tasks.create_task(self.events.run())
            tasks.create_task(self.nodes.run())
            for settings, client, gpus in agents:
                tasks.create_task(agent.run(settings, client, gpus, owners=gpus.programs, read_seconds=_READ_SECONDS))

    async def _add(self, machine: Machine) -> tuple[AgentConfig, SimulatedGpus] | None:
        """Add the machine as a node. Returns what its agent needs, or None if it has no agent."""
        gpus = self.gpus[machine.name]
        if not machine.has_agent:
            await self.nodes.add_simulated(machine.name, gpus, machine.dialects)
            return None
        devices = await self.nodes.add_with_agent(machine.name, gpus, self._folder / machine.name, machine.dialects)
        return _agent_settings(machine, devices), gpus

    async def _end(self) -> None:
        self.life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.life


def _agent_settings(machine: Machine, devices: AgentDevices) -> AgentConfig:
    return AgentConfig(
        node_name=machine.name,
        device_plugins=str(devices.manager.folder),
        pod_resources=str(devices.manager.pod_resources),
        runtime_endpoint="",
        cdi_folder=str(devices.cdi_folder),
        dialects=tuple(machine.dialects),
    )
