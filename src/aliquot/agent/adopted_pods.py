"""Tell the server which cards an adopted pod has, if its dialect writes no cards on pods. Only kubelet's checkpoint
knows them, and so does this agent alone."""

from collections.abc import Mapping

import structlog

from aliquot.agent import observed_record
from aliquot.agent.handover_store import HandOverStore
from aliquot.agent.node_pods import NodePods
from aliquot.dialects import Dialects
from aliquot.kube import Client, KubeError
from aliquot.model.records import PLACEMENT

_log = structlog.get_logger()


class AdoptedPods:
    def __init__(self, store: HandOverStore, pods: NodePods, dialects: Dialects, client: Client) -> None:
        self._store = store
        self._pods = pods
        self._dialects = dialects
        self._client = client
        self._trouble: Mapping[str, str] = {}
        """Why the record of a pod could not be written, by UID."""

    async def record_cards(self) -> None:
        """Write the record of each pod that lacks it, or on which somebody wrote another one. A write that fails is
        tried again with the next call; the log says so once."""
        trouble: dict[str, str] = {}
        for pod in self._pods.all():
            uid = pod.metadata.uid
            record = self._store.of(uid)
            if record is None or record.holding.doubt or not pod.started or PLACEMENT in pod.metadata.annotations:
                continue
            placement = record.holding.placement
            if self._dialects[placement.dialect].names_cards:
                continue
            cards = {name: [part.uuid for part in parts] for name, parts in placement.containers.items()}
            try:
                await observed_record.write(self._client, pod, cards)
            except KubeError as error:
                trouble[uid] = str(error)
                if trouble[uid] != self._trouble.get(uid):
                    _log.warning(
                        "cannot record which cards an adopted pod has, retrying", pod=pod.key, error=str(error)
                    )
        self._trouble = trouble
