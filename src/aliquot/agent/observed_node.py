"""A node whose cards another vendor's device plugin hands out: the agent publishes them, and records who has which."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from aliquot.agent import observed_record
from aliquot.agent.context import AgentContext
from aliquot.agent.devices import Machine
from aliquot.agent.observing import Observer
from aliquot.agent.podresources import PodResources
from aliquot.agent.presence import Presence
from aliquot.agent.usage import Part
from aliquot.model import Gpu, NodeGpus


class ObservedNode:
    def __init__(self, context: AgentContext, machine: Machine) -> None:
        self._context = context
        self.presence = Presence(context, machine, self._cards_of, self._parts)
        pod_resources = PodResources(Path(context.settings.pod_resources), context.clock)
        self._observer = Observer(context.dialects, pod_resources, self.presence.pods, context.client, context.clock)

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Record until cancelled."""
        await self.presence.follow(tasks)
        self.presence.publish(tasks)
        self._context.readiness.needs_no_plugin()
        await self._observer.run()

    def _cards_of(self, gpus: Sequence[Gpu]) -> NodeGpus:
        settings = self._context.settings
        return NodeGpus(settings.node_name, tuple(gpus), settings.unit_mib, observed=True)

    def _parts(self) -> Iterator[Part]:
        for pod in self.presence.pods.all():
            if not pod.ended:
                for container, uuids in observed_record.cards_on(pod).items():
                    yield from (Part(pod.metadata.uid, container, uuid) for uuid in uuids)
