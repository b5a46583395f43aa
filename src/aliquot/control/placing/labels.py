"""Labels that a Binding did not set: Kubernetes copies them from it only since 1.35; before that, we add them later."""

from collections.abc import Callable, Mapping
from typing import NoReturn

import structlog

from aliquot.clock import Clock, after
from aliquot.control.leadership.leadership import Leadership
from aliquot.control.state.cluster_state import ClusterState
from aliquot.dialects import Dialect
from aliquot.errors import BadDemand
from aliquot.kube import PODS, Client, Informer, KubeError
from aliquot.ledger import Entry
from aliquot.model import Pod
from aliquot.model.records import PLACEMENT

_log = structlog.get_logger()


class Labeller:
    """The Lease holder adds them, in a single patch per pod. Aliquot itself never reads them."""

    def __init__(
        self, client: Client, cluster: ClusterState, pods: Informer[Pod], leadership: Leadership, clock: Clock
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._pods = pods
        self._leadership = leadership
        self._clock = clock

    async def run(self, seconds: Callable[[], float]) -> NoReturn:
        while True:
            await after(seconds, self._clock)
            await self.look()

    async def look(self) -> None:
        """Add missing labels. One pass."""
        labelled = {own.name for own in self._cluster.dialects.values() if type(own).labels is not Dialect.labels}
        for entry in self._cluster.ledger.all():
            pod = self._pods.with_uid(entry.uid) if entry.placement.dialect in labelled else None
            if pod is not None and self._leadership.may_commit and (labels := self._missing(pod, entry)):
                await self._add(pod, labels)

    def _missing(self, pod: Pod, entry: Entry) -> Mapping[str, str]:
        """Missing labels of an existing pod that we placed."""
        is_ours = pod.spec.node_name == entry.node and PLACEMENT in pod.metadata.annotations
        if not is_ours or pod.ended or pod.metadata.deletion_timestamp or not entry.placement.containers:
            return {}
        dialect = self._cluster.dialects[entry.placement.dialect]
        try:
            labels = dialect.labels(pod, dialect.held(pod), entry.placement, self._cluster.cards(entry.node))
        except BadDemand:
            return {}
        return {key: value for key, value in labels.items() if pod.metadata.labels.get(key) != value}

    async def _add(self, pod: Pod, labels: Mapping[str, str]) -> None:
        meta = pod.metadata
        try:
            await self._client.patch(
                PODS, meta.name, {"metadata": {"labels": labels}}, namespace=meta.namespace, uid=meta.uid
            )
        except KubeError as error:
            _log.warning("cannot add a pod's labels", pod=pod.key, error=str(error))
