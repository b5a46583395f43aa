"""The one dominant cause for which a pod waits.

The nodes that come closest to taking the pod decide. If cards on some nodes have room, what closes these nodes is the
cause. Otherwise the engine's reason that is closest to a fit is, on nodes that are open if there are any.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from aliquot.control.state.cluster_state import ClusterState
from aliquot.dialects import Demand
from aliquot.engine import Effort, fits_once_healthy, has_room_in_sum, needs_text
from aliquot.errors import BadDemand
from aliquot.model import Node, Pod, Reason
from aliquot.model.constraints import ModelConstraint
from aliquot.model.pending_pod import PendingPod
from aliquot.reports.causes import OF_REASON, Cause, Outlook, Verdict
from aliquot.reports.closed_nodes import ClosedNodes, Obstacle
from aliquot.reports.resource_names import asked_resources, no_such_resource, offered_resources
from aliquot.reports.scheduler_words import about_other_plugins, about_volumes, refusal_of_scheduler, untried
from aliquot.reports.view import ClusterView

_NO_NODE = Verdict(Cause.NO_NODE, Outlook.NEVER, "no node has a card that Aliquot shares")

ByReason = Mapping[Reason | None, Sequence[str]]
"""The nodes by the engine's reason; None where the cards have room."""

_NEAREST_LAST = tuple(OF_REASON)
_MAX_NAMED = 3
_MAX_TRIED = 64
LOOK_EFFORT = 30_000
"""Steps of the engine for one look at a pod: a pod that needs a long search costs no more than others, and a look takes
nothing of the time that the pod has for its search."""


@dataclass(frozen=True)
class Surroundings:
    """What is known besides the cluster state. `serves` is None if it is unknown which schedulers ask Aliquot."""

    nodes: Mapping[str, Node]
    pods_on: Callable[[str], Iterable[Pod]]
    silent_agents: Collection[str] = ()
    serves: Callable[[Pod], bool] | None = None

    def untried(self, pod: Pod) -> str:
        """That the pod's scheduler has not looked at it, where it is unknown whether that asks Aliquot; else ""."""
        return untried(pod) if self.serves is None else ""

    def closed_to(self, cluster: ClusterState, pod: PendingPod, demand: Demand | None) -> ClosedNodes:
        return ClosedNodes(cluster, pod, demand, self.pods_on, self.silent_agents)


def surroundings(view: ClusterView) -> Surroundings:
    return Surroundings(view.nodes, view.pods_on, view.silent_agents)


def why_waiting(cluster: ClusterState, pod: PendingPod, around: Surroundings) -> Verdict:
    """The verdict about a pod, without the search for changes that would help: the leader asks for many pods."""
    known = without_engine(cluster, pod, around)
    if isinstance(known, Verdict):
        return known
    with cluster.trial(without=pod.metadata.uid):  # nothing of it is recorded as a decision
        judged = cluster.judge(known, effort=Effort(LOOK_EFFORT))
        refused = judged.refusals(around.nodes)
    by_reason: dict[Reason | None, list[str]] = {}
    for node in around.nodes:
        by_reason.setdefault(refused.get(node), []).append(node)
    return with_engine(around, around.closed_to(cluster, pod, known), known, by_reason)


def without_engine(cluster: ClusterState, pod: PendingPod, around: Surroundings) -> Verdict | Demand:
    """The verdict, if it does not depend on cards; else the pod's demand."""
    if settled := _settled(pod):
        return settled
    offered = offered_resources(around.nodes.values())
    if sentence := no_such_resource(pod, cluster.dialects, offered):
        return Verdict(Cause.NO_SUCH_RESOURCE, Outlook.NEVER, sentence)
    try:
        demand = cluster.demand_of(pod)
    except BadDemand as error:
        return Verdict(Cause.BAD_REQUEST, Outlook.NEVER, str(error))
    if demand is None:
        return Verdict(Cause.NO_GPU, Outlook.SETTLED, "the pod asks for none, so Aliquot does not hold it back")
    if around.serves is not None and not around.serves(pod):
        name = pod.spec.scheduler_name or "default-scheduler"
        sentence = (
            f"the scheduler {name} is responsible for the pod, and Aliquot does not serve it (spec.schedulerName)"
        )
        return Verdict(Cause.OTHER_SCHEDULER, Outlook.NEVER, sentence)
    if unserved := sorted(asked_resources(pod, demand.dialect) - offered):
        near = _nearest_offered(cluster, offered, unserved)
        if not near:
            return _NO_NODE
        sentence = f"no node serves {' or '.join(unserved)}; the nodes offer {near}"
        return Verdict(Cause.NOT_SERVED, Outlook.NEVER, sentence)
    if volumes := about_volumes(refusal_of_scheduler(pod)):
        claims = f" (PersistentVolumeClaims: {', '.join(pod.claims)})" if pod.claims else ""
        return Verdict(Cause.VOLUME, Outlook.NOT_NOW, f"{volumes}{claims}")
    return demand


def _nearest_offered(cluster: ClusterState, offered: Collection[str], asked: Collection[str]) -> str:
    """Other resources of our dialects that nodes offer. Those with the prefix of what the pod asks for alone, if there
    are any: a cluster with several dialects offers very many."""
    ours = {resource.name for dialect in cluster.dialects.values() for resource in dialect.resources}
    names = sorted(ours.intersection(offered).difference(asked))
    prefixes = {name.partition("/")[0] for name in asked}
    return ", ".join([name for name in names if name.partition("/")[0] in prefixes] or names)


def _settled(pod: PendingPod) -> Verdict | None:
    if pod.ended or pod.metadata.deletion_timestamp:
        return Verdict(Cause.ENDED, Outlook.SETTLED, "the pod has ended or is terminating")
    if node := pod.spec.node_name:
        return Verdict(Cause.BOUND, Outlook.SETTLED, f"the pod is bound to {node}", (node,))
    if pod.spec.scheduling_gates:
        sentence = "the pod has scheduling gates; no scheduler looks at it until they are removed"
        return Verdict(Cause.GATED, Outlook.NEVER, sentence)
    return None


def with_engine(around: Surroundings, closed: ClosedNodes, demand: Demand, by_reason: ByReason) -> Verdict:
    """The verdict, given the engine's reason for each node."""
    return _Closest(around, closed, demand, by_reason).verdict()


class _Closest:
    """Looks for the nodes that come closest to taking the pod."""

    def __init__(self, around: Surroundings, closed: ClosedNodes, demand: Demand, by_reason: ByReason) -> None:
        self._around = around
        self._closed = closed
        self._cluster = closed.cluster
        self._pod = closed.pod
        self._demand = demand
        self._by_reason = by_reason

    def verdict(self) -> Verdict:
        if self._by_reason.get(None):
            return self._closed_although_cards_fit(self._by_reason[None])
        later = [reason for reason in reversed(_NEAREST_LAST) if self._by_reason.get(reason)]
        hopeful = [reason for reason in later if not reason.is_hopeless]
        for reason in hopeful:
            if any(map(self._is_open, self._by_reason[reason])):
                return self._by_cards(reason)
        if hopeful:
            return self._by_obstacle(self._by_reason[hopeful[0]], fits=False)
        if later[:1] == [Reason.NOT_SELLABLE] and not self._would_fit_healthy():
            return self._by_cards(Reason.TOO_LARGE)
        return self._by_cards(later[0]) if later else _NO_NODE

    # -- cards have room

    def _closed_although_cards_fit(self, nodes: Sequence[str]) -> Verdict:
        for name in nodes:
            if not self._obstacles(name, fits=True):
                return self._fits_on(name)
        return self._by_obstacle(nodes, fits=True)

    def _fits_on(self, node: str) -> Verdict:
        ours = [self._demand.dialect.words(reason) for reason in Reason]
        if words := about_other_plugins(refusal_of_scheduler(self._pod), ours):
            return Verdict(Cause.SCHEDULER, Outlook.NOT_NOW, f"the cards have room, but kube-scheduler says: {words}")
        why = self._around.untried(self._pod) or "its scheduler has not bound it yet"
        return Verdict(Cause.FITS, Outlook.FITS, f"there is room for the pod; {why}", (node,))

    def _by_obstacle(self, nodes: Sequence[str], *, fits: bool) -> Verdict:
        """By the obstacle that alone closes the most of these nodes, or else is the first on most of them."""
        found = {name: self._obstacles(name, fits=fits) for name in nodes}
        fewest = min(map(len, found.values()))
        first = Counter((each[0].cause, each[0].what) for each in found.values() if len(each) == fewest)
        (cause, what), _ = min(first.items(), key=lambda item: (-item[1], item[0][0].value, item[0][1]))
        having = [name for name, each in found.items() if each[0].cause is cause and each[0].what == what]
        is_forever = all(found[name][0].is_forever for name in having)
        words = _closed_words(cause, what, having, fits=fits, is_forever=is_forever)
        return Verdict(cause, *words, tuple(having))

    def _is_open(self, name: str) -> bool:
        return not self._obstacles(name, fits=False)

    def _obstacles(self, name: str, *, fits: bool) -> list[Obstacle]:
        return self._closed.obstacles(self._around.nodes[name], fits=fits)

    # -- cards have no room

    def _by_cards(self, reason: Reason) -> Verdict:
        cause, nodes = OF_REASON[reason], self._by_reason.get(reason, ())
        if reason is Reason.NO_CARD_FITS and self._has_room_in_sum(nodes):
            cause = Cause.FRAGMENTED
        outlook = Outlook.NEVER if reason.is_hopeless and cause is not Cause.UNHEALTHY else Outlook.NOT_NOW
        if reason is Reason.OVER_QUOTA and self._is_beyond_quota(nodes):
            outlook = Outlook.NEVER
        return Verdict(cause, outlook, self._sentence(cause, reason, nodes, outlook), tuple(nodes))

    def _has_room_in_sum(self, nodes: Iterable[str]) -> bool:
        together = (node for node in nodes if has_room_in_sum(self._cluster.state(node), self._demand.request))
        return any(map(self._is_open, together))

    def _would_fit_healthy(self) -> bool:
        effort = Effort(LOOK_EFFORT)
        nodes = islice(self._by_reason[Reason.NOT_SELLABLE], _MAX_TRIED)
        return any(fits_once_healthy(self._cluster.state(node), self._demand.request, effort) for node in nodes)

    def _is_beyond_quota(self, nodes: Iterable[str]) -> bool:
        """Whether the pod alone exceeds a limit of the quota for every card that it may use."""
        quota = self._cluster.quota_for(self._demand.request)
        of_cards = [quota.lines(cards, gpu) for cards in map(self._cluster.cards, nodes) for gpu in cards.gpus]
        return all(any(line.needs > line.limit for line in lines) for lines in of_cards if lines)

    def _sentence(self, cause: Cause, reason: Reason, nodes: Sequence[str], outlook: Outlook) -> str:
        request = self._demand.request
        match cause:
            case Cause.NO_NODE:
                return _NO_NODE.sentence
            case Cause.NOT_SERVED:
                asked = sorted(asked_resources(self._pod, self._demand.dialect))
                near = _nearest_offered(self._cluster, offered_resources(self._around.nodes.values()), asked)
                hint = f"; the nodes offer {near}" if near else ""
                return f"no node serves {' or '.join(asked)} to pods like this{hint}"
            case Cause.NOT_IN_QUOTA if reason is Reason.WRONG_POOL:
                return f"the GPU quota of namespace {request.namespace} does not include the pool of any node"
            case Cause.NOT_IN_QUOTA:
                return f"the GPU quota of namespace {request.namespace} does not name {self._models(nodes)}"
            case Cause.QUOTA if outlook is Outlook.NEVER:
                return f"the pod alone exceeds the GPU quota of namespace {request.namespace} for {self._models(nodes)}"
            case Cause.QUOTA:
                return f"the GPU quota of namespace {request.namespace} for {self._models(nodes)} is used up"
            case Cause.MODEL:
                return f"no node has a card of the requested model ({_wanted(request.constraints.models)})"
            case Cause.CARD:
                return "no node has a card that the pod's constraints allow"
            case Cause.TOO_LARGE:
                return f"no node's cards can hold the pod even when empty; it needs {needs_text(request)}"
            case Cause.UNHEALTHY:
                return f"every card that could hold the pod is unhealthy or cordoned ({_some(nodes)})"
            case Cause.FRAGMENTED:
                return "no single card has enough left, although a node's cards together have (fragmentation)"
            case Cause.NO_ROOM:
                return "every card that suits the pod is too full"
            case Cause.TOPOLOGY:
                return f"no node has enough free cards that are connected ({request.constraints.topology.value})"
            case Cause.MODE:
                return "every card that suits the pod is shared in another mode"
            case _:
                return reason.value

    def _models(self, nodes: Iterable[str]) -> str:
        """The models for which the quota counts, as its owner knows them."""
        allows = self._demand.request.constraints.allows_model
        seen = (
            cards.model or gpu.model
            for cards in map(self._cluster.cards, nodes)
            for gpu in cards.gpus
            if allows(gpu.model)
        )
        return _some({*seen})


def _closed_words(
    cause: Cause, what: str, nodes: Sequence[str], *, fits: bool, is_forever: bool
) -> tuple[Outlook, str]:
    """Whether waiting helps where such an obstacle closes every node, and the sentence."""
    none = "no node with room on its cards" if fits else "no node that could take the pod"
    those = "the nodes with room on their cards" if fits else "the nodes that could take the pod"
    match cause:
        case Cause.TAINT:
            return Outlook.NEVER, f"{those} have the taint {what}, which the pod does not tolerate"
        case Cause.NODE_SELECTOR:
            return Outlook.NEVER, f"{none} matches the pod's node selector or affinity"
        case Cause.CORDONED:
            return Outlook.NOT_NOW, f"{those} are cordoned ({_some(nodes)})"
        case Cause.NOT_READY:
            return Outlook.NOT_NOW, f"{those} are not ready ({_some(nodes)})"
        case Cause.AGENT_SILENT:
            return (
                Outlook.NOT_NOW,
                f"the agent is silent on {those} ({_some(nodes)}), so kubelet offers no {what}",
            )
        case Cause.NO_DEVICES:
            return Outlook.NOT_NOW, f"kubelet has too few devices of {what} left on {those}"
        case Cause.PODS:
            return Outlook.NOT_NOW, f"{those} run as many pods as they may"
        case _:
            name = {Cause.CPU: "CPU"}.get(cause, what)
            if is_forever:
                return Outlook.NEVER, f"{none} has as much {name} as the pod requests"
            return Outlook.NOT_NOW, f"{those} have too little {name} left"


def _wanted(models: Iterable[ModelConstraint]) -> str:
    return "; ".join(f"{'not ' if each.avoid else ''}{', '.join(each.names)}" for each in models)


def _some(names: Collection[str]) -> str:
    """A few names, and no count of the others: that changes with every node."""
    return ", ".join(sorted(names)[:_MAX_NAMED]) + (" and others" if len(names) > _MAX_NAMED else "")
