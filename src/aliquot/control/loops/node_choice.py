"""The choice of a node for a pending pod, where no other scheduler chooses."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.node_resources import why_short
from aliquot.control.state.schedulable import why_closed
from aliquot.dialects import Dialect
from aliquot.engine import Judgement
from aliquot.errors import BadDemand, BadQuantity
from aliquot.model import Node, Pod
from aliquot.model.quantity import whole


@dataclass(frozen=True)
class NodeChoice:
    """The node for a pod, or the counted reasons why there is none, as kube-scheduler words them."""

    node: str | None
    why: str = ""
    judgement: Judgement | None = None

    def cards(self) -> list[str]:
        """The cards that the engine chooses on the node."""
        placement = self.judgement.placement(self.node) if self.judgement and self.node else None
        return sorted({part.uuid for part in placement.slices()}) if placement else []


class NodeChooser:
    """Decides, and commits nothing."""

    def __init__(
        self,
        cluster: ClusterState,
        all_nodes: Callable[[], Iterable[Node]],
        pods_on: Callable[[str], Iterable[Pod]],
    ) -> None:
        self._cluster = cluster
        self._all_nodes = all_nodes
        self._pods_on = pods_on

    def choose(self, pod: Pod) -> NodeChoice:
        try:
            demand = self._cluster.demand_of(pod)
        except BadDemand as error:
            return NodeChoice(None, str(error))
        nodes = list(self._all_nodes())
        counted = [resource.name for resource in demand.dialect.resources] if demand else []
        barred = {node.key: self._why_barred(node, pod, counted) for node in nodes}
        usable = [node for node in nodes if not barred[node.key]]
        others = [why for why in barred.values() if why]
        if demand is None:
            return NodeChoice(min((node.key for node in usable), default=None), "" if usable else _count(others))
        # after a Binding of unknown outcome, try the same node again: any other node would hold a second part
        if tried := self._cluster.ledger.nodes_of(pod.metadata.uid) & {node.key for node in usable}:
            return NodeChoice(min(tried))
        offering = [node.key for node in usable if self._offers(node, pod, demand.dialect)]
        judgement = self._cluster.judge(demand, offering)
        best = judgement.best(offering)
        refused = (self._refusal(node, pod, demand.dialect, judgement) for node in usable)
        why = "" if best else _count([*refused, *others])
        return NodeChoice(best, why, judgement)

    def _why_barred(self, node: Node, pod: Pod, counted: Sequence[str]) -> str:
        """Why a node is closed, regardless of its cards; the dialect counts its own resources later."""
        totals, others = self._cluster.totals, self._pods_on(node.key)
        return why_closed(node, pod) or why_short(node, pod, totals, others, but=counted)

    def _refusal(self, node: Node, pod: Pod, dialect: Dialect, judgement: Judgement) -> str:
        if reason := judgement.refusal(node.key):
            return dialect.words_for(reason, self._cluster.cards(node.key), judgement.request)
        asked = sorted(_asked_ids(pod, dialect)) or [dialect.resource]
        return f"kubelet has too few devices of {' or '.join(asked)} left"

    def _offers(self, node: Node, pod: Pod, dialect: Dialect) -> bool:
        """Whether kubelet has enough device IDs left. kubelet permanently fails a pod that asks for more. While no
        plugin has registered the resource, it silently starts the pod without its devices."""
        asked = _asked_ids(pod, dialect)
        return bool(asked) and all(self._ids_left(node, name, pod) >= count for name, count in asked.items())

    def _ids_left(self, node: Node, resource: str, pod: Pod) -> int:
        """The device IDs left for this pod, not counting its own."""
        offered = whole(str((node.status.allocatable or {}).get(resource, 0)))
        others = (other for other in self._pods_on(node.key) if other.metadata.uid != pod.metadata.uid)
        return offered - sum(_ids(other, resource) for other in others if not other.ended)


def _ids(pod: Pod, resource: str) -> int:
    """How many device IDs of a resource kubelet counts for a pod, placed or not."""
    try:
        return pod.asks(resource)
    except BadQuantity:
        return 0


def _asked_ids(pod: Pod, dialect: Dialect) -> dict[str, int]:
    """The resources with a device plugin that a pod asks for."""
    asked = {resource.name: _ids(pod, resource.name) for resource in dialect.resources if resource.socket}
    return {name: count for name, count in asked.items() if count}


def _count(refusals: list[str]) -> str:
    """Count reasons, as kube-scheduler words it."""
    counted = ", ".join(f"{refusals.count(text)} {text}" for text in sorted(set(refusals)))
    return f"0/{len(refusals)} nodes are available: {counted or 'there is no node'}"
