"""Why a node is closed to a pod whatever its cards: what kube-scheduler checks by itself."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.node_resources import PODS, short_of
from aliquot.dialects import Demand
from aliquot.errors import BadQuantity
from aliquot.model import Node, Pod
from aliquot.model.pending_pod import PendingPod
from aliquot.model.quantity import milli
from aliquot.reports.causes import Cause
from aliquot.reports.resource_names import asked_resources

_TAINTS = {
    "node.kubernetes.io/not-ready": Cause.NOT_READY,
    "node.kubernetes.io/unreachable": Cause.NOT_READY,
    "node.kubernetes.io/unschedulable": Cause.CORDONED,
}
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

    def change(self, node: str) -> str:
        """What would have to change on a node where nothing else is in the way; continues "It fits"."""
        match self.cause:
            case Cause.TAINT:
                return f"with a toleration for the taint {self.what} (on {node})"
            case Cause.NODE_SELECTOR:
                return f"with another node selector or affinity (on {node})"
            case Cause.CORDONED:
                return f"when node {node} is uncordoned"
            case Cause.NOT_READY:
                return f"when node {node} is ready"
            case Cause.AGENT_SILENT:
                return f"when the agent of node {node} is back"
            case Cause.PODS | Cause.NO_DEVICES:
                return f"when a pod ends (on {node})"
            case _:
                return f"with less {self.what} (on {node})"


@dataclass(frozen=True)
class ClosedNodes:
    """What kube-scheduler would refuse for one pod. `pods_on` are the pods bound to a node."""

    cluster: ClusterState
    pod: PendingPod
    demand: Demand | None
    pods_on: Callable[[str], Iterable[Pod]]
    silent_agents: Collection[str]
    _known: dict[tuple[str, bool], list[Obstacle]] = field(default_factory=dict, repr=False)

    def obstacles(self, node: Node, *, fits: bool) -> list[Obstacle]:
        """Why the node is closed. The first obstacle counts: room is not counted where a rule closes the node, and
        kubelet's devices only where all else `fits`, the cards too."""
        known = self._known.get((node.key, fits))
        if known is None:
            found = [*self._rules(node)] or [*self._short(node)] or ([*self._without_devices(node)] if fits else [])
            known = self._known[node.key, fits] = list(dict.fromkeys(found))
        return known

    def ruled_out(self, nodes: Iterable[Node]) -> frozenset[str]:
        """The nodes that are closed whatever their pods leave to others."""
        return frozenset(node.key for node in nodes if any(self._rules(node)))

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

    def _short(self, node: Node) -> Iterator[Obstacle]:
        ours = self.demand.dialect.resource_names if self.demand else ()
        for name in self._short_of(node, ours):
            if name == PODS:
                yield Obstacle(Cause.PODS)
            else:
                yield Obstacle(_SHORT_OF.get(name, Cause.RESOURCE), name, self._is_too_small(node, name))

    def _without_devices(self, node: Node) -> Iterator[Obstacle]:
        if self.demand is None:
            return
        asked = asked_resources(self.pod, self.demand.dialect)
        for name in self._short_of(node, self.demand.dialect.resource_names - asked):
            yield Obstacle(Cause.AGENT_SILENT if self._is_silent(node, name) else Cause.NO_DEVICES, name)

    def _short_of(self, node: Node, but: Collection[str]) -> list[str]:
        return short_of(node, self.pod, self.cluster.totals, self.pods_on(node.key), but=but)

    def _is_silent(self, node: Node, resource: str) -> bool:
        """Whether no device plugin on the node offers its cards to kubelet, although the cluster state knows them."""
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
