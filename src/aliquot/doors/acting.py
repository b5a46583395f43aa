"""On which pods a verb may act that changes something, whoever calls it and whatever the body says of the pod.

The pod must be in the cluster under the UID that is given, ask for resources of ours, and belong to a scheduler that we
serve. A filter or a prioritize changes nothing, and is answered for every pod.
"""

from typing import NoReturn

import msgspec

from aliquot.control import ControlPlane
from aliquot.control.passes import SECONDS
from aliquot.doors.extender import BadCall
from aliquot.errors import Refused
from aliquot.kube import PODS, NotFound
from aliquot.kube.resources import Resource
from aliquot.model import Node, Object, Pod

_DEFAULT_SCHEDULER = "default-scheduler"
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


_TOLERATIONS = Resource(PODS.prefix, PODS.plural, _Tolerant, namespaced=True)


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
            return await self._plane.client.get(PODS, name, namespace, timeout=self._plane.settings.look)
        except NotFound:
            return None

    def serves(self, pod: Pod) -> bool:
        schedulers = self._plane.settings.schedulers
        return not schedulers or (pod.spec.scheduler_name or _DEFAULT_SCHEDULER) in schedulers

    def _require_ours(self, pod: Pod) -> None:
        if not self.serves(pod):
            served = ", ".join(sorted(self._plane.settings.schedulers))
            raise Refused(
                f"the pod belongs to scheduler {pod.spec.scheduler_name}, and this server serves {served} (schedulers)"
            )
        books = self._plane.books
        if books.demand_of(pod) is None and not books.dialects.spoken_by(pod):  # one that asks for 0 names them
            raise Refused("the pod asks for no GPU: name managedResources in the extender's configuration")

    async def require_passed(self, pod: Pod, node: Node) -> None:
        """That a filter let the pod pass on the node a moment ago, and that the node is not cordoned. A bind that is
        repeated after it was done is no new one. Raises Refused and KubeError."""
        if pod.spec.node_name == node.key:
            return
        if not self._plane.passes.has(pod.metadata.uid, node.key):
            _refuse_unfiltered(node.key)
        if node.spec.unschedulable and not await self._tolerates_cordon(pod):
            raise Refused(f"node {node.key} is cordoned")

    async def _tolerates_cordon(self, pod: Pod) -> bool:
        """As pods of a DaemonSet do. It is read where it matters: the mirror of every pod does without."""
        meta = pod.metadata
        try:
            now = await self._plane.client.get(
                _TOLERATIONS, meta.name, meta.namespace, timeout=self._plane.settings.look
            )
        except NotFound:
            return False
        return any(toleration.covers(_CORDONED) for toleration in now.spec.tolerations or ())


def _refuse_unfiltered(node: str) -> NoReturn:
    raise Refused(
        f"this server has not let the pod pass on node {node} within the last {SECONDS / 60:g} minutes: filter it again"
    )
