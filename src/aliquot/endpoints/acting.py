"""On which pods a verb may act that changes something, whoever calls it and whatever the body says of the pod.

The pod must be in the cluster under the UID that is given, ask for resources of ours, and belong to a scheduler that we
serve. A filter, a prioritize or a preempt changes nothing in the cluster, and is answered for every pod; what is
remembered of the answer depends on what our mirror says of the pod.
"""

from enum import Enum, auto
from typing import NoReturn

import msgspec

from aliquot.control import ControlPlane
from aliquot.control.placing.filter_results import SECONDS
from aliquot.control.requeue.waiting_pods import asks_alike
from aliquot.control.state.remembered import asked_by
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
        """A taint without a value, and with effect NoSchedule. Without a key it is one of everything."""
        return self.key in ("", taint) and self.effect in ("", "NoSchedule")


class _Spec(msgspec.Struct, frozen=True):
    tolerations: list[_Toleration] | None = None


class _Tolerant(Object, frozen=True):
    spec: _Spec = _Spec()


_TOLERATIONS = ApiResource(PODS.prefix, PODS.plural, _Tolerant, namespaced=True)


class Standing(Enum):
    """What our mirror says of the pod of a body."""

    SAME = auto()
    """It has the pod, and it asks for the same."""
    UNKNOWN = auto()
    """It does not know the UID: kube-scheduler may be ahead of our watch, or somebody has made the pod up."""
    CHANGED = auto()
    """It has the pod, and it asks for something else: an annotation was rewritten a moment ago, or the body lies."""
    FOREIGN = auto()
    """Another pod has the UID, or one of a scheduler that we do not serve."""


class Acting:
    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    async def pod(self, name: str, namespace: str, uid: str) -> Pod:
        """The pod that is meant, from our mirror or, if that does not know it yet, from the API server. Raises BadCall,
        which does not tell a UID, BadDemand, Refused and KubeError."""
        pod = self._plane.pods.get(f"{namespace}/{name}")
        if pod is None or pod.metadata.uid != uid:
            pod = await self.read(name, namespace)
        if pod is None:
            raise BadCall(f'pods "{name}" not found')
        if pod.metadata.uid != uid:
            raise BadCall(f"the pod {name} in namespace {namespace} has another UID than the one in this call")
        self._require_ours(pod)
        return pod

    async def read(self, name: str, namespace: str) -> Pod | None:
        """A pod from the API server; None if it is not there. Raises KubeError."""
        try:
            return await self._plane.client.get(PODS, name, namespace, timeout=self._plane.settings.commit.look)
        except NotFound:
            return None

    def standing(self, pod: Pod) -> Standing:
        known = self._plane.pod_by_uid(pod.metadata.uid)
        if known is None:
            return Standing.UNKNOWN
        if known.key != pod.key or not self._plane.settings.serves(known):
            return Standing.FOREIGN
        return Standing.SAME if asks_alike(known, pod) or self._demand_alike(known, pod) else Standing.CHANGED

    def _demand_alike(self, known: Pod, pod: Pod) -> bool:
        """Annotations and labels may differ that have nothing to do with what is asked for."""
        try:
            return self._plane.cluster.demand_of(known) == self._plane.cluster.demand_of(pod)
        except BadDemand:
            return False

    def _require_ours(self, pod: Pod) -> None:
        if not self._plane.settings.serves(pod):
            served = ", ".join(sorted(self._plane.settings.scheduler_names))
            raise Refused(
                f"the pod belongs to scheduler {pod.spec.scheduler_name}, and this server serves {served} (schedulers)"
            )
        cluster = self._plane.cluster
        if cluster.demand_of(pod) is None and not cluster.dialects.spoken_by(pod):  # one that asks for 0 names them
            raise Refused("the pod asks for no GPU: name managedResources in the extender's configuration")

    async def require_passed(self, pod: Pod, node: Node) -> None:
        """That a filter let the pod pass on the node a moment ago, and that the node is not cordoned. A bind that is
        repeated after it was done is no new one. Raises BadDemand, Refused and KubeError."""
        if pod.spec.node_name == node.key:
            return
        if not self._plane.passes.has(pod.metadata.uid, node.key, asked_by(self._plane.cluster.demand_of(pod))):
            _refuse_unfiltered(node.key)
        if node.spec.unschedulable and not await self._tolerates_cordon(pod):
            raise Refused(f"node {node.key} is cordoned")

    async def _tolerates_cordon(self, pod: Pod) -> bool:
        """As pods of a DaemonSet do. It is read where it matters: the mirror of every pod does without."""
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
        f"this server has not let the pod pass on node {node} within the last {SECONDS / 60:g} minutes: filter it again"
    )
