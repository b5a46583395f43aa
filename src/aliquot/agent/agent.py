"""The agent of one GPU node, put together."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from aliquot.agent import cdi
from aliquot.agent.adopted_pods import record_cards
from aliquot.agent.allocating import AllocateAnswers
from aliquot.agent.card_errors_file import CardErrorsFile
from aliquot.agent.card_health import CardState
from aliquot.agent.card_reader import READ_SECONDS, CardReader
from aliquot.agent.device_list import DeviceList, offered
from aliquot.agent.devices import DeviceSource, Machine
from aliquot.agent.handover import HandOver
from aliquot.agent.health_listener import listening
from aliquot.agent.health_reports import HealthReports
from aliquot.agent.health_watch import HealthWatch
from aliquot.agent.heartbeat import Heartbeat
from aliquot.agent.id_holders import IdHolders
from aliquot.agent.injection import uses_cdi
from aliquot.agent.inventory import Publisher
from aliquot.agent.kubelet_records import CHECKPOINT, KubeletRecords
from aliquot.agent.metrics import AgentMetrics
from aliquot.agent.node_cards import NodeCards
from aliquot.agent.node_dialects import NodeDialects, Relabelled
from aliquot.agent.node_pods import NodePods
from aliquot.agent.plugin import AnswersAllocate, DevicePlugin
from aliquot.agent.podresources import PodResources
from aliquot.agent.readiness import Readiness
from aliquot.agent.unit_change import refuse_unit_change
from aliquot.clock import Clock, SystemClock
from aliquot.config.agent_tree import AgentConfig
from aliquot.dialects import Dialect, Dialects, standard_dialects
from aliquot.errors import BadConfig
from aliquot.kube import NODES, PODS, Client, Informer
from aliquot.model import Gpu, Node, NodeGpus, Pod

_log = structlog.get_logger()
_TIDY_SECONDS = 10.0


async def run(
    settings: AgentConfig,
    client: Client,
    devices: DeviceSource,
    clock: Clock | None = None,
    dialects: Dialects | None = None,
    read_seconds: float = READ_SECONDS,
) -> None:
    """Serve this node until cancelled. Starts again when the labels of the node name other dialects. Raises BadConfig
    before it registers anything if it cannot serve."""
    known, clock = dialects or standard_dialects(), clock or SystemClock()
    chosen = NodeDialects(settings.dialects, settings.node_name, client, known, clock)
    metrics, readiness = AgentMetrics(), Readiness()
    async with listening(settings.health_port, readiness.trouble, metrics.text):
        while True:
            try:
                reader = CardReader(devices, clock, read_seconds)
                await _serve(settings, client, reader, devices, clock, known, chosen, metrics, readiness)
            except* Relabelled:
                _log.info("the labels of the node name other dialects, starting again", node=settings.node_name)


async def _serve(
    settings: AgentConfig,
    client: Client,
    reader: CardReader,
    devices: DeviceSource,
    clock: Clock,
    known: Dialects,
    chosen: NodeDialects,
    metrics: AgentMetrics,
    readiness: Readiness,
) -> None:
    served = await chosen.choose()
    with_cdi = await uses_cdi(settings.injection, _runtime_socket(settings), Path(settings.cdi_folder))
    readiness.begin(reader)
    machine = await reader.first()
    shown = [f"{gpu.index}: {gpu.model}, {gpu.mib} MiB, {gpu.uuid}" for gpu in machine.gpus]
    _log.info("cards", node=settings.node_name, cards=shown)
    agent = _Agent(
        settings,
        served,
        known,
        client,
        clock,
        reader,
        machine,
        devices,
        chosen,
        metrics,
        readiness,
        with_cdi=with_cdi,
    )
    await agent.run()


def _kubelet_records(settings: AgentConfig, clock: Clock, *, with_cdi: bool) -> KubeletRecords:
    """Without CDI the agent does what it can with what is mounted: an original's manifest mounts the folder of device
    plugins and no more."""
    pod_resources, runtime_socket = Path(settings.pod_resources), _runtime_socket(settings)
    has_pod_resources = with_cdi or pod_resources.parent.is_dir()
    if not has_pod_resources:
        _log.warning(
            "kubelet's PodResources socket is not mounted: of equal pods that are placed on different cards and start "
            "together, some fail",
            socket=str(pod_resources),
        )
    if runtime_socket is not None and not (with_cdi or runtime_socket.parent.is_dir()):
        runtime_socket = None
    lister = PodResources(pod_resources, clock) if has_pod_resources else None
    return KubeletRecords(Path(settings.device_plugins), lister, runtime_socket)


def _runtime_socket(settings: AgentConfig) -> Path | None:
    """The socket of the container runtime. None without one, as on a hollow node."""
    return Path(settings.runtime_endpoint.removeprefix("unix://")) if settings.runtime_endpoint else None


def node_cards(node: str, gpus: Iterable[Gpu], served: Sequence[Dialect], unit_mib: int) -> NodeGpus:
    """A node's cards as it publishes them, with as many MPS slots as the served dialects need."""
    slots = max(dialect.slots for dialect in served)
    return NodeGpus(node, tuple(replace(gpu, slots=gpu.slots or slots) for gpu in gpus), unit_mib)


class _Agent:
    def __init__(
        self,
        settings: AgentConfig,
        served: Sequence[Dialect],
        dialects: Dialects,
        client: Client,
        clock: Clock,
        reader: CardReader,
        machine: Machine,
        devices: DeviceSource,
        chosen: NodeDialects,
        metrics: AgentMetrics,
        readiness: Readiness,
        *,
        with_cdi: bool,
    ) -> None:
        self._settings = settings
        self._served = served
        self._dialects = dialects
        self._client = client
        self._chosen = chosen
        self._folder = cdi.SpecFolder(Path(settings.cdi_folder))
        self._clock = clock
        self._reader = reader
        self._readiness = readiness
        self._health = HealthWatch(
            devices, machine, CardErrorsFile(Path(settings.cdi_folder)), metrics, self._on_health
        )
        self._cards = NodeCards(self._node_cards(self._health.machine))
        reader.read.subscribe(self._health.see_machine)
        self._publisher = Publisher(client, self._cards, dialects, clock)
        self._heartbeat = Heartbeat(client, settings.node_name, clock)
        here = {"fieldSelector": f"metadata.name={settings.node_name}"}
        self._node: Informer[Node] = Informer(client, NODES, self._on_node, selector=here, clock=clock)
        on_here = {"fieldSelector": f"spec.nodeName={settings.node_name}"}
        self._informer: Informer[Pod] = Informer(client, PODS, self._on_pod, selector=on_here, clock=clock)
        self._pods = NodePods(self._informer.all)
        self._plugins_folder = Path(settings.device_plugins)
        self._holders = _kubelet_records(settings, clock, with_cdi=with_cdi)
        specs = self._folder if with_cdi else None
        self._hand_over = HandOver(
            served, dialects, self._holders, self._pods, self._cards, devices, specs, client, clock
        )
        self._allocating: AnswersAllocate = cdi.Promises()
        if not with_cdi:
            self._allocating = AllocateAnswers(
                served, dialects, self._holders, self._pods, self._cards, devices, client, clock
            )
        self._id_holders = IdHolders(self._plugins_folder / CHECKPOINT, self._hand_over.store, self._pods, self._cards)
        self._reports = HealthReports(client, clock, self._pods_on)
        self._offering: set[str] = set()
        self._first_plugins = list(self._new_plugins())

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._node.run())
            tasks.create_task(self._informer.run())
            tasks.create_task(self._heartbeat.run())
            await self._informer.synced.wait()
            await self._node.synced.wait()
            self._hand_over.store.recall(self._folder, self._holders)
            self._hand_over.store.recall_answers(self._holders)
            for node in self._node.all():
                refuse_unit_change(node, self._cards.current, self._served, self._id_holders)
            tasks.create_task(self._publisher.run())
            for plugin in self._first_plugins:
                tasks.create_task(plugin.serve())
            tasks.create_task(self._reader.run())
            tasks.create_task(self._health.run())
            tasks.create_task(self._reports.run())
            tasks.create_task(self._tidy())
            tasks.create_task(self._chosen.changes())
            with self._cards.changed.as_event() as changed:
                while True:
                    await changed.wait()
                    changed.clear()
                    try:
                        for plugin in self._new_plugins():
                            tasks.create_task(plugin.serve())
                    except BadConfig as error:
                        _log.error("kubelet keeps the last device list", why=str(error))

    def _new_plugins(self) -> Iterator[DevicePlugin]:
        """A device plugin for each resource that the node offers now and has not offered before. kubelet never forgets
        a resource, so a plugin stays, even if its list becomes empty. Raises BadConfig."""
        for dialect in self._served:
            for resource, _ in offered(dialect, self._cards.current):
                if resource.name not in self._offering:
                    self._offering.add(resource.name)
                    listed = DeviceList(dialect, resource, self._cards, self._id_holders)
                    plugin = DevicePlugin(listed, self._plugins_folder, self._allocating, self._hand_over, self._clock)
                    self._readiness.add(plugin)
                    yield plugin

    def _node_cards(self, machine: Machine) -> NodeGpus:
        cards = node_cards(self._settings.node_name, machine.gpus, self._served, self._settings.unit_mib)
        return replace(cards, driver=machine.driver)

    def _on_health(self, states: Sequence[CardState]) -> None:
        self._cards.see(self._node_cards(self._health.machine))
        self._reports.see(states)

    def _pods_on(self, uuid: str) -> Iterator[Pod]:
        for record in self._hand_over.store.others(""):
            holding = record.holding
            if uuid in holding.charges and not holding.doubt and (pod := self._pods.by_uid(record.uid)) is not None:
                yield pod

    def _on_node(self, _: Node | None, new: Node | None) -> None:
        self._publisher.see(new)
        self._reports.see_node(new)
        if new is not None:
            self._health.see_node(new)
            self._hand_over.store.see_node(new)
            self._chosen.see(new)

    def _on_pod(self, _: Pod | None, __: Pod | None) -> None:
        self._pods.notify()

    async def _tidy(self) -> None:
        while True:
            if not self._informer.trouble:
                await record_cards(self._hand_over.store, self._pods, self._dialects, self._client)
                await self._hand_over.tidy(self._folder, self._holders)
                self._id_holders.changed.emit(None)
            await self._clock.sleep(_TIDY_SECONDS)
