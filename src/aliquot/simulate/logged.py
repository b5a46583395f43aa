"""A world out of a decision log: every node that was there at its end, and every pod with GPU, from when it was first
seen until it was gone. Pods without GPU stay on their nodes, as the log last saw them."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from aliquot.control.decision_log.format import Cards, Header, HeldPart, Hosts, Line, read
from aliquot.control.decision_log.replay import logged_dialects
from aliquot.control.state.events import Claimed, Decided, HostTaken, NodeLost, NodeSeen, PodForgotten, PodSeen
from aliquot.dialects import Dialects, cards_of, demand_of, standard_dialects
from aliquot.errors import BadDemand, BadInput
from aliquot.model import NO_HOST, UNKNOWN_HOST, Host, Node, NodeGpus, Pod, Request
from aliquot.simulate.scenario import SimulatedNode, SimulatedPod, World

_NANOSECONDS = 1e9


def read_log(path: Path) -> World:
    """Raises BadInput."""
    seen = _Seen()
    for _, line in read(path):
        seen.take(line)
    if not seen.began:
        raise BadInput(f"{path} is empty: there is nothing to simulate")
    return seen.world()


@dataclass
class _Seen:
    began: float = 0.0
    dialects: Dialects = field(default_factory=standard_dialects)
    cards: dict[str, NodeGpus] = field(default_factory=dict)
    offered: dict[str, Host] = field(default_factory=dict)
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    pods: dict[str, SimulatedPod] = field(default_factory=dict)
    bound: dict[str, tuple[str, Host]] = field(default_factory=dict)
    """Nodes and requests of bound pods, by UID."""

    def take(self, line: Line) -> None:
        at = line.at / _NANOSECONDS
        self.began = self.began or at
        match line.event:
            case Header() as header:
                self.dialects = logged_dialects(header.prefixes)
            case Cards(cards=cards):
                self.cards[cards.node] = cards
            case HeldPart(request=Request() as request):
                self._arrive(request, at)
            case Hosts(node=node, offered=offered, pods=pods):
                if offered is not None:
                    self.offered[node] = Host(*offered)
                self.bound |= {uid: (node, Host(*numbers)) for uid, numbers in pods.items()}
            case NodeSeen(node=node):
                self._see_node(node)
            case NodeLost(node=name):
                self.cards.pop(name, None)
            case PodSeen(pod=pod):
                self._see_pod(pod, at)
            case HostTaken(uid=uid, node=node, host=host):
                self.bound[uid] = node, host
            case PodForgotten(uid=uid):
                self._leave(uid, at)
            case Decided(request=request) | Claimed(request=request):
                self._arrive(request, at)
            case _:
                pass

    def world(self) -> World:
        taken: dict[str, Host] = {}
        for uid, (node, host) in self.bound.items():
            if uid not in self.pods:
                taken[node] = taken.get(node, NO_HOST) + host
        nodes = [
            SimulatedNode(
                cards, self.offered.get(name, UNKNOWN_HOST), self.labels.get(name, {}), {}, taken.get(name, NO_HOST)
            )
            for name, cards in sorted(self.cards.items())
        ]
        return World(nodes, list(self.pods.values()))

    def _see_node(self, node: Node) -> None:
        name = node.metadata.name
        self.cards[name] = cards_of(node, self.dialects)
        self.offered[name] = node.host
        self.labels[name] = node.metadata.labels

    def _see_pod(self, pod: Pod, at: float) -> None:
        if pod.ended:
            self._leave(pod.metadata.uid, at)
            return
        try:
            demand = demand_of(pod, self.dialects)
        except BadDemand:
            return
        if demand is not None:
            self._arrive(demand.request, at, pod.spec.node_selector or {})
        elif pod.spec.node_name:
            self.bound[pod.metadata.uid] = pod.spec.node_name, pod.host

    def _arrive(self, request: Request, at: float, selector: dict[str, str] | None = None) -> None:
        if request.uid not in self.pods:
            self.pods[request.uid] = SimulatedPod(request, request.namespace, selector or {}, at - self.began)

    def _leave(self, uid: str, at: float) -> None:
        self.bound.pop(uid, None)
        if (pod := self.pods.get(uid)) is not None and pod.leaves is None:
            self.pods[uid] = replace(pod, leaves=at - self.began)
