"""Decisions about nodes with pods that another scheduler has assumed but not bound yet.

A gang scheduler binds a gang once every member has a node. Until then only its own memory knows the assignments, and it
sends them along. We charge those pods as if they were bound, in a fixed order, with the parts that late placement would
give them.
"""

from bisect import bisect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.trial import Trial
from aliquot.dialects import Demand
from aliquot.engine import FULL_EFFORT, Effort, NameBlock, Standings
from aliquot.errors import BadDemand
from aliquot.model import Charge, Constraints, Pod, Reason, charges
from aliquot.model.gpu import CORES

_EACH_POD, _EACH_CONTAINER = 100, 80
_EACH_CARD, _EACH_PART, _EACH_SLICE = 10, 150, 20
"""Steps to read an assumed pod and to place it without a search; a step is about a microsecond."""


@dataclass(frozen=True)
class AssumedPods:
    """The pods on a node according to another scheduler."""

    allocated: Sequence[Pod] = ()
    """About to be bound."""
    pipelined: Sequence[Pod] = ()
    """Will be allocated once the releasing pods have ended: may overlap those, and no other pod."""
    releasing: Collection[str] = ()
    """UIDs."""


def packing_order(cluster: ClusterState, pod: Pod) -> tuple[float, str]:
    """Sort key for best packing, each pod on its own node: the largest first."""
    return _order(cluster, pod.metadata.uid, _demand(cluster, pod), pod.spec.node_name)


def refusal(
    cluster: ClusterState, pod: Pod, demand: Demand, node: str, assumed: AssumedPods, *, later: bool = False
) -> Reason | None:
    """Why a node cannot take a pod next to these assumed pods; None if it can. `later`: after the releasing pods have
    ended.

    Pods about to be bound will be placed together with this pod, in order of size. All of them must get a part.
    """
    if not cluster.totals.knows(node):
        return Reason.UNKNOWN_NODE
    budget = _budget(cluster)
    with cluster.trial(without=pod.metadata.uid) as trial:
        on_node = _NodeTrial(cluster, trial, node, budget)
        others = on_node.in_order(assumed.allocated)
        index = len(others) if later else bisect(others, on_node.order_of(demand), key=on_node.order_of)
        if not on_node.place(others[:index]):
            return on_node.refusal
        checkpoint = trial.checkpoint()
        on_node.charge_pipelined(assumed, later=later)
        if budget.ran_out:
            return Reason.SEARCH_LIMIT
        reason = cluster.refusal(demand, node, budget)
        trial.rollback(checkpoint)
        if reason is None and others[index:] and not on_node.place([demand, *others[index:]]):
            return on_node.refusal
        return reason


def standings(cluster: ClusterState, pod: Pod, demand: Demand, assumed: Mapping[str, AssumedPods]) -> Standings:
    """How the nodes compare for a pod next to the assumed pods. Those are placed only as far as the budget lasts: a
    score is no promise."""
    budget = _budget(cluster)
    with cluster.trial(without=pod.metadata.uid) as trial:
        for node, here in assumed.items():
            if here.allocated and not budget.ran_out:
                on_node = _NodeTrial(cluster, trial, node, budget)
                on_node.place(on_node.in_order(here.allocated))
        return cluster.judge(demand, assumed).standings_at(cluster.fleet.table.find(NameBlock.of(assumed)))


class _NodeTrial:
    """A node on which assumed pods are tried. Every pod takes steps from the budget, even without a search, because
    many pods take long."""

    def __init__(self, cluster: ClusterState, trial: Trial, node: str, budget: Effort) -> None:
        self._cluster = cluster
        self._trial = trial
        self._node = node
        self._cards = cluster.cards(node)
        self._budget = budget

    def in_order(self, pods: Iterable[Pod]) -> list[Demand]:
        """Sort the demands of pods that ask for GPUs, within the budget."""
        read = (_demand(self._cluster, pod) for pod in pods if self._budget.take(_steps_to_read(pod)))
        return sorted((demand for demand in read if demand), key=self.order_of)

    def order_of(self, demand: Demand) -> tuple[float, str]:
        return _order(self._cluster, demand.request.uid, demand, self._node)

    def place(self, demands: Iterable[Demand]) -> bool:
        """Place these pods. Returns whether all of them got a part."""
        return all(self._place(demand) for demand in demands)

    @property
    def refusal(self) -> Reason:
        return Reason.SEARCH_LIMIT if self._budget.ran_out else Reason.NO_CARD_FITS

    def charge_pipelined(self, assumed: AssumedPods, *, later: bool) -> None:
        """Charge each card for the pipelined or the releasing pods, whichever is more; with `later`, for the
        pipelined pods alone."""
        if not assumed.pipelined and not (later and assumed.releasing):
            return
        before, now = self._trial.checkpoint(), self._cluster.ledger.used(self._node)
        releasing = [self._cluster.ledger.entry(uid, self._node) for uid in assumed.releasing]
        freed = {uuid for entry in releasing if entry is not None for uuid in entry.charges}
        for uid in assumed.releasing:
            self._trial.remove_from(self._node, uid)
        for demand in self.in_order(assumed.pipelined):
            if not self._place(self._only_on(freed, demand)):
                self._place(demand)  # charges nothing without room: the asking pod must not pay for an overcommitment
        if not later:
            then = self._cluster.ledger.used(self._node)
            self._trial.rollback(before)
            self._trial.charge(self._node, _exceeding(then, now))

    def _place(self, demand: Demand) -> bool:
        """Place a pod, within the budget."""
        if not self._budget.take(_steps_to_place(demand, len(self._cards.gpus))):
            return False
        placement = self._cluster.find(demand, self._node, self._budget)
        if placement is None:
            return False
        request = demand.request.on(self._cards)
        self._trial.charge(self._node, charges(placement, request), request)
        return not self._budget.ran_out

    def _only_on(self, uuids: Collection[str], demand: Demand) -> Demand:
        others = Constraints(not_uuids=frozenset(self._cards.by_uuid.keys() - uuids))
        request = demand.request
        return replace(demand, request=replace(request, constraints=request.constraints & others))


def _budget(cluster: ClusterState) -> Effort:
    """The budget of a single call, over all assumed pods and nodes."""
    return Effort(int(FULL_EFFORT * cluster.searches.seconds))


def _steps_to_read(pod: Pod) -> int:
    return _EACH_POD + _EACH_CONTAINER * (len(pod.spec.containers or ()) + len(pod.spec.init_containers or ()))


def _steps_to_place(demand: Demand, cards: int) -> int:
    """Steps on a node with this many cards."""
    parts = [container.part.cards for container in demand.request.containers]
    return _EACH_POD + _EACH_CARD * cards + _EACH_PART * len(parts) + _EACH_SLICE * sum(parts)


def _demand(cluster: ClusterState, pod: Pod) -> Demand | None:
    """The demand of a pod; None also for an unreadable demand, because such a pod gets nothing."""
    try:
        return cluster.demand_of(pod)
    except BadDemand:
        return None


def _order(cluster: ClusterState, uid: str, demand: Demand | None, node: str) -> tuple[float, str]:
    """Sort key by size in cards, the largest first: memory plus cores relative to a card of the node."""
    cards = cluster.cards(node)
    if demand is None or not cards.gpus:
        return 0.0, uid
    gpu = cards.gpus[0]
    parts = ((c.part.cards, c.part.on(gpu, cards.unit_mib)) for c in demand.request.containers)
    return -sum(count * (part.mib / max(1, gpu.mib) + part.cores / CORES) for count, part in parts), uid


def _exceeding(then: Mapping[str, Charge], now: Mapping[str, Charge]) -> dict[str, Charge]:
    """By how much the charge of each card is larger then than it is now."""
    before = {uuid: now.get(uuid, Charge()) for uuid in then}
    return {uuid: charge.at_least(before[uuid]) - before[uuid] for uuid, charge in then.items()}
