"""Hollow GPU nodes: Node objects with kubelets that only report that pods run.

Some run with the real agent. The others are fully simulated and cheap enough for hundreds in one process: all nodes
share one watch of pods and one of nodes.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import structlog

from aliquot import agent
from aliquot.agent.devices import Machine
from aliquot.agent.heartbeat import Heartbeat
from aliquot.agent.inventory import Publisher
from aliquot.agent.node_cards import NodeCards
from aliquot.agent.node_pods import NODE_PODS, NodePod
from aliquot.agent.usage import Collector
from aliquot.clock import Clock, SystemClock, rfc3339
from aliquot.config.agent_tree import AgentConfig
from aliquot.dialects import Dialect, Dialects, standard_dialects
from aliquot.dialects.node_reading import SERVES
from aliquot.embedded.gpus import SimulatedGpus
from aliquot.embedded.nodes import objects
from aliquot.embedded.nodes.agent_devices import AgentDevices
from aliquot.embedded.nodes.devices import Devices
from aliquot.embedded.nodes.kubelet import Kubelet
from aliquot.embedded.nodes.simulated_devices import SimulatedDevices
from aliquot.kube import NODES, Client, Informer, KubeError
from aliquot.model import Node, NodeGpus, Pod
from aliquot.model.load import NodeLoad

_log = structlog.get_logger()
_RETRY_SECONDS = 1.0
_UNIT_MIB = AgentConfig().unit_mib


class HollowNode:
    """A node: its devices, its kubelet and its Node object. Without a publisher, an agent publishes its cards."""

    def __init__(
        self,
        name: str,
        labels: Mapping[str, str],
        devices: Devices,
        gpus: SimulatedGpus,
        client: Client,
        clock: Clock,
        publisher: Publisher | None = None,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self.name = name
        self.devices = devices
        self.kubelet = Kubelet(devices, gpus, client, clock)
        self.publisher = publisher
        self._heartbeat = heartbeat
        self._labels = labels
        self._client = client
        self._clock = clock

    async def open(self) -> None:
        await self.devices.open()
        now = rfc3339(self._clock.wall_ns())
        await self._client.create(NODES, objects.node(self.name, self._labels, self.devices.capacity(), now))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._report_capacity())
            if self.publisher is not None:
                tasks.create_task(self.publisher.run())
            if self._heartbeat is not None:
                tasks.create_task(self._heartbeat.run())

    async def _report_capacity(self) -> None:
        while True:
            await self.devices.changed.wait()
            self.devices.changed.clear()
            resources = {resource: str(count) for resource, count in self.devices.capacity().items()}
            body = {"status": {"capacity": resources, "allocatable": resources}}
            try:
                await self._client.patch(NODES, self.name, body, part="status")
            except KubeError as error:
                _log.warning("cannot report the node's capacity", node=self.name, error=str(error))
                await self._clock.sleep(_RETRY_SECONDS)
                self.devices.changed.set()


class HollowNodes(Mapping[str, HollowNode]):
    """All hollow nodes of a cluster, by name. Add them, then `run`; leave the context to close their sockets. If
    `with_leases`, simulated nodes renew a Lease with their load, as agents do."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock | None = None,
        dialects: Dialects | None = None,
        with_leases: bool = False,
    ) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._dialects = dialects or standard_dialects()
        self._nodes: dict[str, HollowNode] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._with_leases = with_leases
        by_node = {"node": lambda pod: pod.spec.node_name}
        self._pods: Informer[NodePod] = Informer(client, NODE_PODS, self._on_pod, indexes=by_node, clock=self._clock)
        self._informer: Informer[Node] = Informer(client, NODES, self._on_node, clock=self._clock)

    def __getitem__(self, name: str) -> HollowNode:
        return self._nodes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    async def __aenter__(self) -> "HollowNodes":
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self._nodes.values():
            await node.devices.close()

    async def add_with_agent(
        self, name: str, source: SimulatedGpus, folder: Path, served: Sequence[str]
    ) -> AgentDevices:
        """Add a node whose cards a real agent serves on sockets below `folder`."""
        devices = AgentDevices(folder)
        labels = _labels(agent.served_dialects(served, self._dialects))
        await self._add(HollowNode(name, labels, devices, source, self._client, self._clock))
        return devices

    async def add_simulated(
        self, name: str, source: SimulatedGpus, served: Sequence[str], unit_mib: int = _UNIT_MIB
    ) -> NodeGpus:
        """Add a fully simulated node, which offers and hands over its cards without an agent. Raises BadConfig."""
        dialects = agent.served_dialects(served, self._dialects)

        def node_cards(machine: Machine) -> NodeGpus:
            return agent.node_cards(name, machine.gpus, dialects, unit_mib)

        cards = NodeCards(node_cards(source.read()))
        source.changed.subscribe(lambda machine: cards.see(node_cards(machine)))
        devices = SimulatedDevices(
            dialects, self._dialects, cards, source, lambda: self._pods.having("node", name), self._client, self._clock
        )
        publisher = Publisher(self._client, cards, self._dialects, self._clock)
        heartbeat = self._heartbeat(name, source) if self._with_leases else None
        await self._add(
            HollowNode(name, _labels(dialects), devices, source, self._client, self._clock, publisher, heartbeat)
        )
        return cards.current

    def _heartbeat(self, name: str, source: SimulatedGpus) -> Heartbeat:
        """A heartbeat that measures when it beats: nothing else reads the cards of a simulated node."""
        collector = Collector(
            source.read(),
            source.programs,
            lambda: self._pods.having("node", name),
            lambda: self._nodes[name].kubelet.parts(),
            self._clock,
        )

        def load() -> NodeLoad | None:
            collector.join(self._clock.wall_ns() / 1e9, source.read().usage, source.programs.of(()))
            return collector.load()

        return Heartbeat(self._client, name, self._clock, load)

    async def _add(self, node: HollowNode) -> None:
        self._nodes[node.name] = node
        await node.open()

    async def run(self) -> None:
        """Serve the pods of the nodes until cancelled."""
        # the informers end first: their last events still need a group that takes tasks
        async with asyncio.TaskGroup() as self._tasks, asyncio.TaskGroup() as loops:
            loops.create_task(self._informer.run())
            loops.create_task(self._pods.run())
            for node in self._nodes.values():
                loops.create_task(node.run())

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        assert self._tasks is not None, "the informer runs inside run()"
        pod = new or old
        if pod is not None and pod.spec.node_name in self._nodes:
            self._nodes[pod.spec.node_name].kubelet.see(old, new, self._tasks)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        if node is not None and node.key in self._nodes:
            publisher = self._nodes[node.key].publisher
            if publisher is not None:
                publisher.see(new)


def _labels(served: Sequence[Dialect]) -> dict[str, str]:
    """The node labels of the dialect's original; ours if it has none, or for several dialects."""
    if len(served) == 1 and served[0].node_labels:
        return dict(served[0].node_labels)
    return {f"{SERVES}{dialect.name}": "true" for dialect in served}
