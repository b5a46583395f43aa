"""Tell the server which cards an adopted pod has, if its dialect writes no cards on pods. Only kubelet's checkpoint
knows them, and so does this agent alone."""

import structlog

from aliquot.agent import observed_record
from aliquot.agent.handover_store import HandOverStore
from aliquot.agent.node_pods import NodePods
from aliquot.dialects import Dialects
from aliquot.kube import Client, KubeError
from aliquot.model.records import PLACEMENT

_log = structlog.get_logger()


async def record_cards(store: HandOverStore, pods: NodePods, dialects: Dialects, client: Client) -> None:
    """Write the record of each pod that lacks it, or on which somebody wrote another one. A write that fails is tried
    again with the next call."""
    for pod in pods.all():
        record = store.of(pod.metadata.uid)
        if record is None or record.holding.doubt or not pod.started or PLACEMENT in pod.metadata.annotations:
            continue
        placement = record.holding.placement
        if dialects[placement.dialect].names_cards:
            continue
        cards = {name: [part.uuid for part in parts] for name, parts in placement.containers.items()}
        try:
            await observed_record.write(client, pod, cards)
        except KubeError as error:
            _log.warning("cannot record which cards an adopted pod has", pod=pod.key, error=str(error))
