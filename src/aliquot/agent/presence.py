"""What the agent does on every GPU node, whoever hands out its cards: it publishes the cards and their health, renews
the node's Lease, and follows the Node and its pods."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from aliquot.agent.agent_events import AgentEvents
from aliquot.agent.card_errors_file import CardErrorsFile
from aliquot.agent.card_health import CardState
from aliquot.agent.context import AgentContext
from aliquot.agent.devices import Machine
from aliquot.agent.health_reports import HealthReports
from aliquot.agent.health_watch import HealthWatch
from aliquot.agent.heartbeat import Heartbeat
from aliquot.agent.inventory import Publisher
from aliquot.agent.node_cards import NodeCards
from aliquot.agent.node_pods import NODE_PODS, NodePod, NodePods
from aliquot.agent.usage import Collector, Part
from aliquot.kube import NODES, Informer
from aliquot.model import Gpu, Node, NodeGpus, Pod
from aliquot.signals import Signal


class Presence:
    """`cards_of` makes the node's cards of those that the driver shows. `parts` are what pods have been given."""

    def __init__(
        self,
        context: AgentContext,
        machine: Machine,
        cards_of: Callable[[Sequence[Gpu]], NodeGpus],
        parts: Callable[[], Iterable[Part]],
    ) -> None:
        settings, client, clock = context.settings, context.client, context.clock
        self._cards_of = cards_of
        self._parts = parts
        self._reader = context.reader
        file = CardErrorsFile(Path(settings.cdi_folder))
        self._health = HealthWatch(
            context.devices.judge, context.errors, machine, file, context.metrics, self._on_health
        )
        self.cards = NodeCards(self._node_cards())
        self._reader.read.subscribe(self._health.see_machine)
        self._publisher = Publisher(client, self.cards, context.dialects, clock)
        here = {"fieldSelector": f"metadata.name={settings.node_name}"}
        self._node: Informer[Node] = Informer(client, NODES, self._on_node, selector=here, clock=clock)
        on_here = {"fieldSelector": f"spec.nodeName={settings.node_name}"}
        self._informer: Informer[NodePod] = Informer(client, NODE_PODS, self._on_pod, selector=on_here, clock=clock)
        self.pods = NodePods(self._informer.all)
        self._collector = Collector(machine, context.owners, self._informer.all, parts, clock)
        context.metrics.follow(self._collector.current)
        self._reader.read.subscribe(self._collector.see_machine)
        self._heartbeat = Heartbeat(client, settings.node_name, clock, self._collector.load)
        self.events = AgentEvents(client, clock)
        self._reports = HealthReports(client, clock, self._pods_on, self.events)
        self.node_seen: Signal[Node] = Signal()

    @property
    def knows_pods(self) -> bool:
        """Whether the list of pods is up to date."""
        return not self._informer.trouble

    async def warn(self, reason: str, message: str) -> None:
        """Write an event about the Node."""
        for node in self._node.all():
            await self.events.write(node, reason, message)

    async def follow(self, tasks: asyncio.TaskGroup) -> Sequence[Node]:
        """Start to follow the API server. Returns the Node, if there is one, when it and its pods are known."""
        tasks.create_task(self._node.run())
        tasks.create_task(self._informer.run())
        tasks.create_task(self._heartbeat.run())
        await self._informer.synced.wait()
        await self._node.synced.wait()
        return self._node.all()

    def publish(self, tasks: asyncio.TaskGroup) -> None:
        """Start to publish the cards and their health, and to read them again."""
        tasks.create_task(self._publisher.run())
        tasks.create_task(self._collector.run())
        tasks.create_task(self._reader.run())
        tasks.create_task(self._health.run())
        tasks.create_task(self._reports.run())

    def _pods_on(self, uuid: str) -> Iterator[Pod]:
        """The pods with a part of a card."""
        holders = dict.fromkeys(part.pod_uid for part in self._parts() if part.uuid == uuid)
        yield from (pod for pod in map(self.pods.by_uid, holders) if pod is not None)

    def _node_cards(self) -> NodeGpus:
        machine = self._health.machine
        return replace(self._cards_of(machine.gpus), driver=machine.driver)

    def _on_health(self, states: Sequence[CardState]) -> None:
        self.cards.see(self._node_cards())
        self._reports.see(states, self._health.machine.left_out)

    def _on_node(self, _: Node | None, new: Node | None) -> None:
        self._publisher.see(new)
        self._reports.see_node(new)
        if new is not None:
            self._health.see_node(new)
            self.node_seen.emit(new)

    def _on_pod(self, _: NodePod | None, __: NodePod | None) -> None:
        self.pods.notify()
