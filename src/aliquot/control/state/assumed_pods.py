"""Decisions about nodes with pods that another scheduler has assumed but not bound yet.

A gang scheduler binds a gang once every member has a node. Until then only its own memory knows the assignments, and it
sends them along. We charge those pods as if they were bound, in a fixed order, with the parts that late placement would
give them.
"""

from bisect import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.trial import trying
from aliquot.dialects import Demand
from aliquot.engine import FULL_EFFORT, Effort, NodeState
from aliquot.errors import BadDemand
from aliquot.model import Charge, Placement, Pod, Reason, charges
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
    scene = _Scene(cluster, node, pod, budget)
    others = scene.in_order(guests.put)
    place = len(others) if later else bisect(others, scene.order_of(demand), key=scene.order_of)
    if not scene.seat(others[:place]):
        return scene.why_not_seated
    around = scene.beside(guests, later=later)
    if budget.ran_out:
        return Reason.SEARCH_LIMIT
    reason = cluster.refusal(around, demand, scene.taken_in(demand.request.namespace), budget)
    if reason is None and others[place:] and not scene.seat([demand, *others[place:]]):
        return scene.why_not_seated
    return reason


def scores(cluster: ClusterState, pod: Pod, demand: Demand, guests: Mapping[str, Guests]) -> dict[str, float]:
    """The policy's raw scores of the nodes that can take a pod next to their guests. Guests are placed only as far as
    the budget lasts: a score is no promise."""
    budget = _budget(cluster)
    with cluster.without(pod), trying(cluster) as scratch:
        for node, here in guests.items():
            if here.put and not budget.ran_out:
                scene = _Scene(cluster, node, pod, budget)
                scene.seat(scene.in_order(here.put))
                for guest, placement in scene.seated:
                    scratch.take(guest.request, placement)
        return cluster.judge(demand, guests).scores(guests)


class _Scene:
    """A node with placed guests, without the asking pod's own entry. Every guest takes steps from the budget, even
    without a search, because many guests take long."""

    def __init__(self, cluster: ClusterState, node: str, asking: Pod, budget: Effort) -> None:
        own = cluster.ledger.entry(asking.metadata.uid, node)
        self._cluster = cluster
        self._node = node
        self._budget = budget
        self.state = NodeState(cluster.cards(node), cluster.ledger.used(node)).minus(own.charges if own else {})
        self.seated: list[tuple[Demand, Placement]] = []

    def in_order(self, pods: Iterable[Pod]) -> list[Demand]:
        """Sort the demands of pods that ask for GPUs, within the budget."""
        read = (_demand(self._cluster, pod) for pod in pods if self._budget.take(_steps_to_read(pod)))
        return sorted((demand for demand in read if demand), key=self.order_of)

    def order_of(self, demand: Demand) -> tuple[float, str]:
        return _order(self._cluster, demand.request.uid, demand, self._node)

    def seat(self, guests: Sequence[Demand]) -> bool:
        """Place these guests. Returns whether all of them got a part."""
        placed = self._cluster.place_on(self.state, self._paid(guests), self._budget)
        for guest, (placement, after) in zip(guests, placed, strict=False):
            if placement is None:
                return False
            self.state = after
            self.seated.append((guest, placement))
        return not self._budget.ran_out

    @property
    def why_not_seated(self) -> Reason:
        return Reason.SEARCH_LIMIT if self._budget.ran_out else Reason.NO_CARD_FITS

    def _paid(self, guests: Iterable[Demand]) -> Iterator[Demand]:
        """Yield as many guests as the budget has steps for."""
        cards = len(self.state.cards.gpus)
        return (guest for guest in guests if self._budget.take(_steps_to_place(guest, cards)))

    def taken_in(self, namespace: str) -> list[Mapping[str, Charge]]:
        """The charges of placed guests of a namespace."""
        return [charges(part, guest.request) for guest, part in self.seated if guest.request.namespace == namespace]

    def beside(self, guests: Guests, *, later: bool) -> NodeState:
        """The node with the larger charge per card of the coming and the ending pods; with `later`, of the coming pods
        alone."""
        if not guests.coming and not (later and guests.ending):
            return self.state
        entries = (self._cluster.ledger.entry(uid, self._node) for uid in guests.ending)
        leaving = [entry.charges for entry in entries if entry is not None]
        then = self.state
        for held in leaving:
            then = then.minus(held)
        freed = {uuid for held in leaving for uuid in held}
        for coming in self.in_order(guests.coming):
            then = self._with(then, coming, freed)
        return then if later else replace(self.state, used=_most(self.state.used, then.used))

    def _with(self, state: NodeState, coming: Demand, freed: Collection[str]) -> NodeState:
        """Place a coming pod, preferably on freed cards. If it does not fit, charge nothing: the asking pod must not
        pay for an overcommitment."""
        on_freed = state.closed(state.cards.by_uuid.keys() - freed)
        for cards in (on_freed, state):
            for placement, after in self._cluster.place_on(cards, self._paid([coming]), self._budget):
                if placement is not None:
                    return replace(state, used=after.used)
        return state


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


def _most(one: Mapping[str, Charge], other: Mapping[str, Charge]) -> dict[str, Charge]:
    """The larger charge of each card."""
    return {uuid: one.get(uuid, Charge()).at_least(other.get(uuid, Charge())) for uuid in one.keys() | other.keys()}
