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
from aliquot.engine import FULL_EFFORT, Effort
from aliquot.errors import BadDemand
from aliquot.model import Charge, Constraints, Pod, Reason, charges
from aliquot.model.gpu import CORES

_EACH_POD, _EACH_CONTAINER = 100, 80
_EACH_CARD, _EACH_PART, _EACH_SLICE = 10, 150, 20
"""Steps to read an assumed pod and to place it without a search; a step is about a microsecond."""


@dataclass(frozen=True)
class Guests:
    """The pods on a node according to another scheduler."""

    put: Sequence[Pod] = ()
    """About to be bound."""
    coming: Sequence[Pod] = ()
    """Will be put there once the ending pods have ended: may overlap those, and no other pod."""
    ending: Collection[str] = ()
    """UIDs."""


def packing_order(cluster: ClusterState, pod: Pod) -> tuple[float, str]:
    """Sort key for best packing, each pod on its own node: the largest first."""
    return _order(cluster, pod.metadata.uid, _demand(cluster, pod), pod.spec.node_name)


def refusal(
    cluster: ClusterState, pod: Pod, demand: Demand, node: str, guests: Guests, *, later: bool = False
) -> Reason | None:
    """Why a node cannot take a pod next to these guests; None if it can. `later`: after the ending pods have ended.

    Pods about to be bound will be placed together with this pod, in order of size. All of them must get a part.
    """
    if not cluster.totals.knows(node):
        return Reason.UNKNOWN_NODE
    budget = _budget(cluster)
    with cluster.trial(without=pod.metadata.uid) as trial:
        scene = _Scene(cluster, trial, node, budget)
        others = scene.in_order(guests.put)
        place = len(others) if later else bisect(others, scene.order_of(demand), key=scene.order_of)
        if not scene.seat(others[:place]):
            return scene.why_not_seated
        seated = trial.checkpoint()
        scene.make_way(guests, later=later)
        if budget.ran_out:
            return Reason.SEARCH_LIMIT
        reason = cluster.refusal(demand, node, budget)
        trial.rollback(seated)
        if reason is None and others[place:] and not scene.seat([demand, *others[place:]]):
            return scene.why_not_seated
        return reason


def scores(cluster: ClusterState, pod: Pod, demand: Demand, guests: Mapping[str, Guests]) -> dict[str, float]:
    """The policy's raw scores of the nodes that can take a pod next to their guests. Guests are placed only as far as
    the budget lasts: a score is no promise."""
    budget = _budget(cluster)
    with cluster.trial(without=pod.metadata.uid) as trial:
        for node, here in guests.items():
            if here.put and not budget.ran_out:
                scene = _Scene(cluster, trial, node, budget)
                scene.seat(scene.in_order(here.put))
        return cluster.judge(demand, guests).scores(guests)


class _Scene:
    """A node on which guests are tried. Every guest takes steps from the budget, even without a search, because many
    guests take long."""

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

    def seat(self, guests: Iterable[Demand]) -> bool:
        """Place these guests. Returns whether all of them got a part."""
        return all(self._seat(guest) for guest in guests)

    @property
    def why_not_seated(self) -> Reason:
        return Reason.SEARCH_LIMIT if self._budget.ran_out else Reason.NO_CARD_FITS

    def make_way(self, guests: Guests, *, later: bool) -> None:
        """Charge each card for the coming or the ending pods, whichever is more; with `later`, for the coming pods
        alone."""
        if not guests.coming and not (later and guests.ending):
            return
        before, now = self._trial.checkpoint(), self._cluster.ledger.used(self._node)
        leaving = [self._cluster.ledger.entry(uid, self._node) for uid in guests.ending]
        freed = {uuid for entry in leaving if entry is not None for uuid in entry.charges}
        for uid in guests.ending:
            self._trial.remove_from(self._node, uid)
        for coming in self.in_order(guests.coming):
            if not self._seat(self._only_on(freed, coming)):
                self._seat(coming)  # charges nothing without room: the asking pod must not pay for an overcommitment
        if not later:
            then = self._cluster.ledger.used(self._node)
            self._trial.rollback(before)
            self._trial.charge(self._node, _exceeding(then, now))

    def _seat(self, guest: Demand) -> bool:
        """Place a guest, within the budget."""
        if not self._budget.take(_steps_to_place(guest, len(self._cards.gpus))):
            return False
        placement = self._cluster.find(guest, self._node, self._budget)
        if placement is None:
            return False
        request = guest.request.on(self._cards)
        self._trial.charge(self._node, charges(placement, request), request.pod)
        return not self._budget.ran_out

    def _only_on(self, uuids: Collection[str], demand: Demand) -> Demand:
        others = Constraints(not_uuids=frozenset(self._cards.by_uuid.keys() - uuids))
        request = demand.request
        return replace(demand, request=replace(request, constraints=request.constraints & others))


def _budget(cluster: ClusterState) -> Effort:
    """The budget of a single call, over all guests and nodes."""
    return Effort(int(FULL_EFFORT * cluster.searches.seconds))


def _steps_to_read(pod: Pod) -> int:
    return _EACH_POD + _EACH_CONTAINER * (len(pod.spec.containers or ()) + len(pod.spec.init_containers or ()))


def _steps_to_place(guest: Demand, cards: int) -> int:
    """Steps on a node with this many cards."""
    parts = [container.part.cards for container in guest.request.containers]
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
