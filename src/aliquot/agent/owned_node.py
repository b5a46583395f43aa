"""A node whose cards this agent hands out: device plugins for kubelet, and the hand-over."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from aliquot.agent import cdi
from aliquot.agent.adopted_pods import AdoptedPods
from aliquot.agent.allocating import AllocateAnswers
from aliquot.agent.context import AgentContext
from aliquot.agent.device_list import DeviceList, offered
from aliquot.agent.devices import Machine
from aliquot.agent.guard_report import GuardReport
from aliquot.agent.handover import HandOver
from aliquot.agent.id_holders import IdHolders
from aliquot.agent.kubelet_records import KubeletRecords
from aliquot.agent.plugin import AnswersAllocate, DevicePlugin
from aliquot.agent.podresources import PodResources
from aliquot.agent.presence import Presence
from aliquot.agent.rivals import Rivals
from aliquot.agent.unit_change import refuse_unit_change
from aliquot.agent.usage import Part
from aliquot.dialects import Dialect
from aliquot.errors import BadConfig
from aliquot.model import Gpu, NodeGpus

_log = structlog.get_logger()
_TIDY_SECONDS = 10.0
_RIVAL = "RivalDevicePlugin"


def node_cards(node: str, gpus: Iterable[Gpu], served: Sequence[Dialect], unit_mib: int) -> NodeGpus:
    """A node's cards as it publishes them, with as many MPS slots as the served dialects need."""
    slots = max(dialect.slots for dialect in served)
    return NodeGpus(node, tuple(replace(gpu, slots=gpu.slots or slots) for gpu in gpus), unit_mib)


class OwnedNode:
    def __init__(self, context: AgentContext, machine: Machine, served: Sequence[Dialect], *, with_cdi: bool) -> None:
        """Raises BadConfig if the cards cannot be offered."""
        settings, dialects, client, clock = context.settings, context.dialects, context.client, context.clock
        self._context = context
        self._served = served
        self.presence = Presence(context, machine, self._cards_of, self._parts)
        self._cards, self._pods = self.presence.cards, self.presence.pods
        self._folder = cdi.SpecFolder(Path(settings.cdi_folder))
        self._plugins_folder = Path(settings.device_plugins)
        self._holders = _kubelet_records(context, with_cdi=with_cdi)
        specs = self._folder if with_cdi else None
        self._hand_over = HandOver(
            served, dialects, self._holders, self._pods, self._cards, context.devices, specs, client, clock
        )
        self._adopted = AdoptedPods(self._hand_over.store, self._pods, dialects, client)
        self._allocating: AnswersAllocate = cdi.Promises()
        if not with_cdi:
            self._allocating = AllocateAnswers(
                served, dialects, self._holders, self._pods, self._cards, context.devices, client, clock
            )
        self._id_holders = IdHolders(self._holders, self._hand_over.store, self._pods, self._cards)
        self.presence.node_seen.subscribe(self._hand_over.store.see_node)
        self._guard = GuardReport(client, clock, context.devices, self.presence.events)
        self.presence.node_seen.subscribe(self._guard.see_node)
        self._offering: set[str] = set()
        self._offered_for: Sequence[Gpu] | None = None
        self._rivals = Rivals(self._holders, dialects)
        self._plugins = list(self._new_plugins())

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Serve kubelet until cancelled. Raises BadConfig."""
        nodes = await self.presence.follow(tasks)
        await self._hand_over.store.recall(self._folder, self._holders)
        await self._id_holders.refresh()
        await self._rivals.look(())
        for node in nodes:
            refuse_unit_change(node, self._cards.current, self._served, self._id_holders)
        self.presence.publish(tasks)
        for plugin in self._plugins:
            tasks.create_task(plugin.serve())
        tasks.create_task(self._tidy())
        tasks.create_task(self._guard.run())
        with self._cards.changed.as_event() as changed:
            while True:
                await changed.wait()
                changed.clear()
                try:
                    for plugin in self._new_plugins():
                        self._plugins.append(plugin)
                        tasks.create_task(plugin.serve())
                except BadConfig as error:
                    _log.error("kubelet keeps the last device list", why=str(error))

    def _new_plugins(self) -> Iterator[DevicePlugin]:
        """A device plugin for each resource that the node offers now and has not offered before. kubelet never forgets
        a resource, so a plugin stays, even if its list becomes empty. Raises BadConfig."""
        # the ids do not depend on these, and to count 600,000 takes half a second
        cards = [replace(gpu, healthy=True, cordoned=False, links=()) for gpu in self._cards.current.gpus]
        if cards == self._offered_for:
            return
        self._offered_for = cards
        for dialect in self._served:
            for resource, _ in offered(dialect, self._cards.current):
                if resource.name not in self._offering:
                    self._offering.add(resource.name)
                    listed = DeviceList(dialect, resource, self._cards, self._id_holders)
                    plugin = DevicePlugin(
                        listed, self._plugins_folder, self._allocating, self._hand_over, self._context.clock
                    )
                    self._context.readiness.add(plugin)
                    yield plugin

    def _cards_of(self, gpus: Sequence[Gpu]) -> NodeGpus:
        settings = self._context.settings
        return node_cards(settings.node_name, gpus, self._served, settings.unit_mib)

    def _parts(self) -> Iterator[Part]:
        for record in self._hand_over.store.others(""):
            if not record.holding.doubt:
                for container, given in record.holding.placement.containers.items():
                    yield from (Part(record.uid, container, part.uuid, part.cores, part.mib) for part in given)

    async def _tidy(self) -> None:
        while True:
            if self.presence.knows_pods:
                await self._adopted.record_cards()
                await self._hand_over.tidy(self._folder, self._holders)
                self._id_holders.changed.emit(None)
            for rival in await self._rivals.look(self._plugins):
                _log.error("two device plugins serve a resource", why=rival)
                await self.presence.warn(_RIVAL, rival)
            await self._context.clock.sleep(_TIDY_SECONDS)


def _kubelet_records(context: AgentContext, *, with_cdi: bool) -> KubeletRecords:
    """Without CDI the agent does what it can with what is mounted: an original's manifest mounts the folder of device
    plugins and no more."""
    pod_resources, runtime_socket = Path(context.settings.pod_resources), context.settings.runtime_socket
    has_pod_resources = with_cdi or pod_resources.parent.is_dir()
    if not has_pod_resources:
        _log.warning(
            "kubelet's PodResources socket is not mounted: of equal pods that are placed on different cards and start "
            "together, some fail",
            socket=str(pod_resources),
        )
    if runtime_socket is not None and not (with_cdi or runtime_socket.parent.is_dir()):
        runtime_socket = None
    lister = PodResources(pod_resources, context.clock) if has_pod_resources else None
    return KubeletRecords(Path(context.settings.device_plugins), lister, runtime_socket)
