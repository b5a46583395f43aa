"""Which pods a mutating verb may act on, regardless of the caller and the body.

The pod must exist in the cluster under the given UID, request our resources, and belong to a scheduler that we serve.
filter, prioritize and preempt change nothing in the cluster, so we answer them for every pod. What we remember of the
answer depends on the pod in our informer cache.
"""

from enum import Enum, auto
from typing import NoReturn

import msgspec

from aliquot.control import ControlPlane
from aliquot.control.placing.filter_results import SECONDS, demand_hash
from aliquot.control.requeue.waiting_pods import asks_alike
from aliquot.endpoints.extender import BadCall
from aliquot.errors import BadDemand, Refused
from aliquot.kube import PODS, NotFound
from aliquot.kube.resources import ApiResource
from aliquot.model import Node, Object, Pod

_CORDONED = "node.kubernetes.io/unschedulable"


class _Toleration(msgspec.Struct, frozen=True):
    key: str = ""
    effect: str = ""

    def covers(self, taint: str) -> bool:
        """Report whether this covers a NoSchedule taint without a value. An empty key covers every taint."""
        return self.key in ("", taint) and self.effect in ("", "NoSchedule")


class _Spec(msgspec.Struct, frozen=True):
    tolerations: list[_Toleration] | None = None


class _Tolerant(Object, frozen=True):
    spec: _Spec = _Spec()


_TOLERATIONS = ApiResource(PODS.prefix, PODS.plural, _Tolerant, namespaced=True)


class CacheMatch(Enum):
    """How the pod of a body compares with our informer cache."""

    SAME = auto()
    """The cache has the pod, with the same request."""
    UNKNOWN = auto()
    """The cache does not have the UID: kube-scheduler may be ahead of our watch, or the caller made the pod up."""
    CHANGED = auto()
    """The cache has the pod, with another request: an annotation just changed, or the body lies."""
    FOREIGN = auto()
    """The UID belongs to another pod, or to a pod of a scheduler that we do not serve."""


class PodChecks:
    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    async def find(self, name: str, namespace: str, uid: str) -> Pod:
        """The requested pod, from our informer cache or, if it is not there yet, from the API server. Raises BadCall,
        which does not reveal a UID, BadDemand, Refused and KubeError."""
        pod = self._plane.pods.get(f"{namespace}/{name}")
        if pod is None or pod.metadata.uid != uid:
            pod = await self.read(name, namespace)
        if pod is None:
            raise BadCall(f'pods "{name}" not found')
        if pod.metadata.uid != uid:
            raise BadCall(f"pod {namespace}/{name} has a different UID than this call names")
        self._require_ours(pod)
        return pod

    async def read(self, name: str, namespace: str) -> Pod | None:
        """Read a pod from the API server; None if it does not exist. Raises KubeError."""
        try:
            return await self._plane.client.get(PODS, name, namespace, timeout=self._plane.settings.commit.look)
        except NotFound:
            return None

    def compare(self, pod: Pod) -> CacheMatch:
        known = self._plane.pod_by_uid(pod.metadata.uid)
        if known is None:
            return CacheMatch.UNKNOWN
        if known.key != pod.key or not self._plane.settings.serves(known):
            return CacheMatch.FOREIGN
        return CacheMatch.SAME if asks_alike(known, pod) or self._demand_alike(known, pod) else CacheMatch.CHANGED

    def _demand_alike(self, known: Pod, pod: Pod) -> bool:
        """Compare only the demands: unrelated annotations and labels may differ."""
        try:
            return self._plane.cluster.demand_of(known) == self._plane.cluster.demand_of(pod)
        except BadDemand:
            return False

    def _require_ours(self, pod: Pod) -> None:
        if not self._plane.settings.serves(pod):
            served = ", ".join(sorted(self._plane.settings.scheduler_names))
            raise Refused(
                f"the pod uses scheduler {pod.spec.scheduler_name}; this server serves {served} (key schedulers)"
            )
        cluster = self._plane.cluster
        if cluster.demand_of(pod) is None and not cluster.dialects.spoken_by(pod):  # a request for 0 counts
            raise Refused("the pod requests no GPU; set managedResources in the extender's configuration")

    async def require_passed(self, pod: Pod, node: Node) -> None:
        """Require that a filter recently passed the pod on the node, and that the node is not cordoned. A repeated bind
        that already succeeded needs neither. Raises BadDemand, Refused and KubeError."""
        if pod.spec.node_name == node.key:
            return
        if not self._plane.passes.has(pod.metadata.uid, node.key, demand_hash(self._plane.cluster.demand_of(pod))):
            _refuse_unfiltered(node.key)
        if node.spec.unschedulable and not await self._tolerates_cordon(pod):
            raise Refused(f"node {node.key} is cordoned")

    async def _tolerates_cordon(self, pod: Pod) -> bool:
        """Report whether a pod tolerates a cordon, as DaemonSet pods do. Our informer cache omits tolerations."""
        meta = pod.metadata
        try:
            now = await self._plane.client.get(
                _TOLERATIONS, meta.name, meta.namespace, timeout=self._plane.settings.commit.look
            )
        except NotFound:
            return False
        return any(toleration.covers(_CORDONED) for toleration in now.spec.tolerations or ())


def _refuse_unfiltered(node: str) -> NoReturn:
    raise Refused(
        f"this server's filter has not passed the pod on node {node} within the last {SECONDS / 60:g} minutes; "
        "filter the pod again"
    )
