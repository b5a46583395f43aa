"""A world made of Kubernetes objects, as the server reads them.

Pods without GPU stay on the nodes to which they are bound: placing them is not Aliquot's task. Unbound ones, pods that
have ended, and nodes that are cordoned are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from aliquot.clock import seconds_of
from aliquot.dialects import Dialects, cards_of, demand_of, holding_of
from aliquot.errors import BadDemand, BadInput, BadRecord, NotPlaced
from aliquot.model import NO_HOST, Charge, Host, Node, Pod
from aliquot.model.host import UNKNOWN
from aliquot.model.kubernetes import Metadata
from aliquot.simulate.scenario import SimulatedNode, SimulatedPod, World


class _Owner(msgspec.Struct, frozen=True):
    kind: str = ""


class _OwnedMetadata(Metadata, frozen=True):
    owner_references: list[_Owner] | None = None


class OwnedPod(Pod, frozen=True):
    """A pod with its owners, which the server does not need."""

    metadata: _OwnedMetadata

    @property
    def goes_with_its_node(self) -> bool:
        """Whether it is a DaemonSet's, or one that kubelet runs by itself."""
        return any(owner.kind in ("DaemonSet", "Node") for owner in self.metadata.owner_references or ())


@dataclass
class Objects:
    """With `keep_bound`, pods with GPU stay on their nodes, too, and hold there what they hold."""

    dialects: Dialects
    keep_bound: bool = False
    nodes: list[SimulatedNode] = field(default_factory=list)
    pods: list[SimulatedPod] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Why objects were left out."""
    _bound: list[OwnedPod] = field(default_factory=list)
    _nodes: int = 0
    _cordoned: int = 0

    def add_node(self, node: Node) -> None:
        """Raises BadRecord."""
        self._nodes += 1
        if node.spec.unschedulable:
            self._cordoned += 1
            self.left_out.append(f"node {node.key} is cordoned")
            return
        self.nodes.append(SimulatedNode(cards_of(node, self.dialects), node.host, node.metadata.labels))

    def add_pod(self, pod: OwnedPod) -> None:
        if pod.ended:
            return
        try:
            demand = demand_of(pod, self.dialects)
        except BadDemand as error:
            self.left_out.append(f"pod {pod.key}: {error}")
            return
        if pod.spec.node_name and (demand is None or self.keep_bound):
            self._bound.append(pod)
        elif demand is None:
            self.left_out.append(f"pod {pod.key} asks for no GPU and is not bound")
        else:
            selector = pod.spec.node_selector or {}
            self.pods.append(SimulatedPod(demand.request, pod.metadata.namespace, selector, arrives=_seconds(pod)))

    def world(self) -> World:
        """Raises BadInput."""
        if self._nodes and not any(node.cards.gpus for node in self.nodes):
            raise BadInput(f"{self._why_no_cards()}: there is nothing to simulate")
        bound: dict[str, list[OwnedPod]] = {}
        for pod in self._bound:
            bound.setdefault(pod.spec.node_name, []).append(pod)
        nodes = [self._with(node, bound.get(node.name, [])) for node in self.nodes]
        return World(sorted(nodes, key=lambda node: node.name), self.pods)

    def _why_no_cards(self) -> str:
        if self._cordoned == self._nodes:
            return f"every node is cordoned ({self._nodes})"
        others = f" that is not cordoned ({self._cordoned} are)" if self._cordoned else ""
        return f"no node{others} publishes cards in any dialect (nvidia.com/gpu alone does not count)"

    def _with(self, node: SimulatedNode, pods: list[OwnedPod]) -> SimulatedNode:
        used: dict[str, Charge] = dict(node.used)
        taken = sum((pod.host for pod in pods), NO_HOST)
        daemons = sum((pod.host for pod in pods if pod.goes_with_its_node), NO_HOST)
        for pod in pods:
            for uuid, charge in self._held(pod, node).items():
                used[uuid] = used.get(uuid, Charge()) + charge
        return replace(node, used=used, taken=_known(node.host, taken), daemons=_known(node.host, daemons))

    def _held(self, pod: Pod, node: SimulatedNode) -> Mapping[str, Charge]:
        try:
            holding = holding_of(pod, node.cards, self.dialects)
        except (BadDemand, BadRecord, NotPlaced) as error:
            self.left_out.append(f"pod {pod.key}: {error}")
            return {}
        return {} if holding is None else holding.charges


def _known(host: Host, taken: Host) -> Host:
    """Of what a node does not say, nothing is ever short."""
    return Host(0 if host.cpu == UNKNOWN else taken.cpu, 0 if host.memory == UNKNOWN else taken.memory)


def _seconds(pod: Pod) -> float:
    return seconds_of(pod.metadata.creation_timestamp) or 0.0
