"""The agent of one GPU node, put together."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import structlog

from aliquot.agent.card_errors import CardErrors
from aliquot.agent.card_reader import READ_SECONDS, CardReader
from aliquot.agent.cdi_choice import uses_cdi
from aliquot.agent.context import AgentContext
from aliquot.agent.devices import DeviceSource, Machine
from aliquot.agent.health_listener import listening
from aliquot.agent.kubelet_version import kubelet_version
from aliquot.agent.metrics import AgentMetrics, Exporter
from aliquot.agent.node_dialects import NodeDialects, Relabelled
from aliquot.agent.observed_node import ObservedNode
from aliquot.agent.owned_node import OwnedNode
from aliquot.agent.readiness import Readiness
from aliquot.agent.usage import FindsOwners, HostProcesses
from aliquot.clock import Clock, SystemClock
from aliquot.config.agent_tree import AgentConfig
from aliquot.dialects import Dialects, standard_dialects
from aliquot.kube import Client

_log = structlog.get_logger()


async def run(
    settings: AgentConfig,
    client: Client,
    devices: DeviceSource,
    clock: Clock | None = None,
    dialects: Dialects | None = None,
    owners: FindsOwners | None = None,
    exporters: Mapping[str, Exporter] | None = None,
    read_seconds: float = READ_SECONDS,
) -> None:
    """Serve this node until cancelled. Starts again when the labels of the node say something else. Raises BadConfig
    before it registers anything if it cannot serve."""
    known, clock = dialects or standard_dialects(), clock or SystemClock()
    chosen = NodeDialects(settings.dialects, settings.node_name, client, known, clock)
    owners = owners or HostProcesses(Path(settings.host_root) / "proc")
    shown = [exporter for name, exporter in (exporters or {}).items() if name in settings.exporters]
    metrics, readiness, errors = AgentMetrics(settings.node_name, shown), Readiness(), CardErrors(devices)
    async with listening(settings.health_port, readiness.trouble, metrics.text):
        while True:
            metrics.forget()
            try:
                reader = CardReader(devices, clock, read_seconds)
                context = AgentContext(
                    settings, known, client, devices, owners, reader, errors, metrics, readiness, clock
                )
                await _serve(context, chosen)
            except* Relabelled:
                _log.info("the labels of the node have changed, starting again", node=settings.node_name)


async def _serve(context: AgentContext, chosen: NodeDialects) -> None:
    served = await chosen.choose()
    node: OwnedNode | ObservedNode
    if served:
        settings = context.settings
        folder, pod_resources = Path(settings.cdi_folder), Path(settings.pod_resources)
        kubelet = await kubelet_version(context.client, settings.node_name, context.clock)
        with_cdi = await uses_cdi(settings.injection, kubelet, settings.runtime_socket, folder, pod_resources)
        node = OwnedNode(context, await _first_cards(context), served, with_cdi=with_cdi)
    else:
        node = ObservedNode(context, await _first_cards(context))
    node.presence.node_seen.subscribe(chosen.see)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(chosen.changes())
        await node.run(tasks)


async def _first_cards(context: AgentContext) -> Machine:
    context.readiness.begin(context.reader)
    machine = await context.reader.first()
    shown = [f"{gpu.index}: {gpu.model}, {gpu.mib} MiB, {gpu.uuid}" for gpu in machine.gpus]
    _log.info("cards", node=context.settings.node_name, cards=shown)
    return machine
