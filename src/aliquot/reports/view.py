"""Everything that a report is made of: the cluster state as the server has it, and what else is known."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from aliquot.clock import seconds_of
from aliquot.control.inputs.pod_use import PodUse, part_uses
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Loaded, Marked, NodeSeen, PodSeen, QuotasRead, TimePassed
from aliquot.dialects import Dialects
from aliquot.dialects.unhealthy import unhealthy_cards
from aliquot.errors import BadRecord
from aliquot.kube.resources import Event, Lease
from aliquot.model import Node, Pod
from aliquot.model.load import FRESH_SECONDS, LOAD, NodeLoad, longest_silence, read_load
from aliquot.model.pending_pod import PendingPod, PendingPodSpec, Toleration
from aliquot.reports.objects import ClusterObjects, Missing
from aliquot.reports.resource_names import no_such_resource, offered_resources


class Purpose(Enum):
    """What a view is for. Each knows more than the one before, and takes longer to make."""

    SHOWING = "who holds which cards"
    EXPLAINING = "what pods leave of the nodes' CPU and memory, too"
    DECIDING = "what policies need, too"


@dataclass(frozen=True)
class ClusterView:
    """The server makes one of its informer caches, and `view_of` one of objects that were read once."""

    cluster: ClusterState
    now: float
    """Seconds since the epoch."""
    nodes: Mapping[str, Node]
    """By name."""
    pods: Mapping[str, Pod]
    """By UID."""
    silent_agents: Mapping[str, float] = field(default_factory=dict)
    """By node, for how many seconds its agent has been silent; only agents that are late."""
    loads: Mapping[str, NodeLoad] = field(default_factory=dict)
    """By node; only recent ones."""
    events: Sequence[Event] = ()
    read_in_full: Callable[[str], PendingPod | None] = lambda _: None
    """The pod with a UID as it was read in full, if it was. Only pods that wait are."""
    only_namespace: str = ""
    """The one namespace whose pods are known; empty if all pods are."""
    missing: Sequence[Missing] = ()
    _uses: dict[str, Mapping[str, Mapping[str, PodUse]]] = field(default_factory=dict, repr=False)

    def in_full(self, pod: Pod) -> PendingPod:
        """A pod with the fields by which kube-scheduler chooses among nodes. If these are unknown, no taint and no
        affinity closes a node to it."""
        if (read := self.read_in_full(pod.metadata.uid)) is not None:
            return read
        fields = {field: getattr(pod.spec, field) for field in pod.spec.__struct_fields__}
        spec = PendingPodSpec(**fields, tolerations=[Toleration(operator="Exists")])
        return PendingPod(metadata=pod.metadata, spec=spec, status=pod.status)

    def pods_on(self, node: str) -> Sequence[Pod]:
        return self._by_node.get(node, ())

    @cached_property
    def _by_node(self) -> Mapping[str, Sequence[Pod]]:
        found: dict[str, list[Pod]] = {}
        for pod in self.pods.values():
            found.setdefault(pod.spec.node_name, []).append(pod)
        return found

    def uses_of(self, pod: Pod) -> Mapping[str, PodUse]:
        """What a pod uses of the cards that it holds, by their UUIDs; empty if its node does not report it."""
        node = pod.spec.node_name
        if node not in self._uses:
            load, entries = self.loads.get(node), self.cluster.ledger.entries(node)
            cards, are_all = self.cluster.cards(node), not self.only_namespace
            self._uses[node] = part_uses(load, entries, cards, are_all=are_all) if load else {}
        return self._uses[node].get(pod.metadata.uid, {})

    def no_such_resource(self, pod: Pod) -> str:
        """That no node has a resource for which a pod waits; "" if there is none of these, or if no node is seen."""
        if pod.spec.node_name or not pod.asks_extended or self.lacks("nodes"):
            return ""
        return no_such_resource(pod, self.cluster.dialects, self._offered)

    @cached_property
    def _offered(self) -> set[str]:
        return offered_resources(self.nodes.values())

    def lacks(self, resource: str) -> bool:
        """Whether the reader may not read objects of a kind, such as `nodes`."""
        return any(right.resource == resource for right in self.missing)


def view_of(
    objects: ClusterObjects, dialects: Dialects | None = None, purpose: Purpose = Purpose.DECIDING
) -> ClusterView:
    decides = purpose is Purpose.DECIDING
    cluster = ClusterState(dialects, decides=decides)
    leases = {lease.metadata.name: lease for lease in objects.leases}
    loads = recent_loads(leases, objects.at)
    cluster.apply(TimePassed(objects.at))
    cluster.apply(QuotasRead(objects.quotas))
    for node, text in objects.unhealthy.items():
        with suppress(BadRecord):  # the server keeps the last readable list, and we have none
            cluster.apply(Marked(node, sorted(unhealthy_cards(text))))
    for each in objects.nodes:
        cluster.apply(NodeSeen(each))
    for pod in objects.pods:  # after the nodes: reading a pod's placement needs the cards of its node
        if purpose is not Purpose.SHOWING or pod.asks_extended:
            cluster.apply(PodSeen(pod))
    for name, load in loads.items() if decides else ():
        busy = {uuid: card.cores for uuid, card in load.cards.items() if card.cores is not None}
        cluster.apply(Loaded(name, load.at, busy, frozenset(load.pods)))
    return ClusterView(
        cluster,
        objects.at,
        {node.key: node for node in objects.nodes},
        {pod.metadata.uid: pod for pod in objects.pods},
        silent_agents(leases, objects.at),
        loads,
        objects.events,
        {pod.metadata.uid: pod for pod in objects.waiting}.get,
        objects.namespace,
        objects.missing,
    )


def silent_agents(leases: Mapping[str, Lease], now: float) -> dict[str, float]:
    """As the server knows them, but by the clock of the API server: there is only one look at each Lease."""
    found = {}
    for node, lease in leases.items():
        renewed = seconds_of(lease.spec.renew_time)
        if renewed is not None and now - renewed > longest_silence(lease.spec.lease_duration_seconds):
            found[node] = now - renewed
    return found


def recent_loads(leases: Mapping[str, Lease], now: float) -> dict[str, NodeLoad]:
    found = {}
    for node, lease in leases.items():
        text = lease.metadata.annotations.get(LOAD)
        if text is None:
            continue
        with suppress(BadRecord):
            load = read_load(text)
            if abs(now - load.at) <= FRESH_SECONDS:  # a clock that is ahead does not make it last
                found[node] = load
    return found
