"""Why a node is closed to a pod whatever its cards: what kube-scheduler checks by itself."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.node_resources import why_short
from aliquot.dialects import Demand
from aliquot.errors import BadQuantity
from aliquot.model import Node, Pod
from aliquot.model.pending_pod import PendingPod
from aliquot.model.quantity import milli
from aliquot.reports.causes import Cause

_TAINTS = {
    "node.kubernetes.io/not-ready": Cause.NOT_READY,
    "node.kubernetes.io/unreachable": Cause.NOT_READY,
    "node.kubernetes.io/unschedulable": Cause.CORDONED,
}
_SHORT = "Insufficient "
_TOO_MANY_PODS = "Too many pods"
_SHORT_OF = {"cpu": Cause.CPU, "memory": Cause.MEMORY}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """`what` is the taint or the resource, if there is one. `is_forever` if the node is too small even when empty."""

    cause: Cause
    what: str = ""
    is_forever: bool = False

    def text(self) -> str:
        match self.cause:
            case Cause.TAINT:
                return f"taint {self.what}, which the pod does not tolerate"
            case Cause.NODE_SELECTOR:
                return "the pod's node selector or affinity does not match"
            case Cause.CORDONED:
                return "the node is cordoned"
            case Cause.NOT_READY:
                return "the node is not ready"
            case Cause.AGENT_SILENT:
                return f"the node's agent is silent, so kubelet offers no {self.what}"
            case Cause.NO_DEVICES:
                return f"kubelet has too few devices of {self.what} left"
            case Cause.PODS:
                return "the node runs as many pods as it may"
            case _:
                return f"too little {self.what}" + (" even when empty" if self.is_forever else "")


@dataclass(frozen=True)
class ClosedNodes:
    """What kube-scheduler would refuse for one pod. `pods_on` are the pods bound to a node."""

    cluster: ClusterState
    pod: PendingPod
    demand: Demand | None
    pods_on: Callable[[str], Iterable[Pod]]
    silent_agents: Collection[str]

    def obstacles(self, node: Node, *, fits: bool) -> list[Obstacle]:
        """Why the node is closed, the most lasting reason first. `fits` if its cards could take the pod: only then it
        matters whether kubelet has devices for them."""
        found = [*self._rules(node), *self._short(node, fits=fits)]
        return list(dict.fromkeys(found))

    def _rules(self, node: Node) -> Iterator[Obstacle]:
        taints = self.pod.untolerated(node)
        yield from (Obstacle(Cause.TAINT, str(taint)) for taint in taints if taint.key not in _TAINTS)
        if not self.pod.selects(node):
            yield Obstacle(Cause.NODE_SELECTOR)
        known = {_TAINTS[taint.key] for taint in taints if taint.key in _TAINTS}
        if node.spec.unschedulable or Cause.CORDONED in known:
            yield Obstacle(Cause.CORDONED)
        if not node.ready or Cause.NOT_READY in known:
            yield Obstacle(Cause.NOT_READY)

    def _short(self, node: Node, *, fits: bool) -> Iterator[Obstacle]:
        ours = self.demand.dialect.resource_names if self.demand else frozenset()
        hidden = (
            {resource.name for resource in self.demand.dialect.resources if not resource.on_nodes}
            if self.demand
            else ()
        )
        but = ours if not fits else hidden
        short = why_short(node, self.pod, self.cluster.totals, self.pods_on(node.key), but=but)
        for text in filter(None, short.split(", ")):
            if text == _TOO_MANY_PODS:
                yield Obstacle(Cause.PODS)
                continue
            name = text.removeprefix(_SHORT)
            if name in ours:
                yield Obstacle(Cause.AGENT_SILENT if self._is_silent(node, name) else Cause.NO_DEVICES, name)
            else:
                yield Obstacle(_SHORT_OF.get(name, Cause.RESOURCE), name, self._is_too_small(node, name))

    def _is_silent(self, node: Node, resource: str) -> bool:
        """Whether nobody on the node offers its cards to kubelet, although the cluster state knows them."""
        return node.key in self.silent_agents or not _amount(node.status.allocatable, resource)

    def _is_too_small(self, node: Node, resource: str) -> bool:
        try:
            return self.pod.requests(resource) > _amount(node.status.allocatable, resource)
        except BadQuantity:
            return False


def _amount(resources: Mapping[str, object] | None, name: str) -> int:
    """Thousandths; 0 for what cannot be read."""
    try:
        return milli(str((resources or {}).get(name, 0)))
    except BadQuantity:
        return 0
