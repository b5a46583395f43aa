"""Tell the server which cards an adopted pod has, if its dialect writes no cards on pods. Only kubelet's checkpoint
knows them, and so does this agent alone."""

import structlog

from aliquot.agent.handover_store import HandOverStore
from aliquot.agent.node_pods import NodePods
from aliquot.dialects import Dialects
from aliquot.kube import PODS, Client, KubeError
from aliquot.model import Pod
from aliquot.model.records import OBSERVED, PLACEMENT, write_observed

_log = structlog.get_logger()


async def record_cards(store: HandOverStore, pods: NodePods, dialects: Dialects, client: Client) -> None:
    """Write the record of each pod that lacks it. A write that fails is tried again with the next call."""
    for pod in pods.all():
        record = store.of(pod.metadata.uid)
        if record is None or record.holding.doubt or not _is_unrecorded(pod):
            continue
        placement, own = record.holding.placement, pod.metadata
        if dialects[placement.dialect].names_cards:
            continue
        cards = {name: [part.uuid for part in parts] for name, parts in placement.containers.items()}
        body = {"metadata": {"annotations": {OBSERVED: write_observed(own.uid, cards)}}}
        try:
            await client.patch(PODS, own.name, body, namespace=own.namespace, uid=own.uid)
        except KubeError as error:
            _log.warning("cannot record which cards an adopted pod has", pod=pod.key, error=str(error))
        else:
            _log.info("recorded which cards an adopted pod has", pod=pod.key, cards=cards)


def _is_unrecorded(pod: Pod) -> bool:
    return pod.started and pod.metadata.annotations.keys().isdisjoint((PLACEMENT, OBSERVED))
