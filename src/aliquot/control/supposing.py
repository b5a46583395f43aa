"""Questions about nodes on which another scheduler has put pods that are not bound yet.

A scheduler of gangs binds a gang when all of it has a place. Until then only its own memory says who is where, and it
sends that along: those pods are charged as if they were here, in a fixed order, each with the part that late placement
would give it.
"""

from bisect import bisect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from aliquot.control.books import Books
from aliquot.control.scratch import trying
from aliquot.dialects import Demand
from aliquot.engine import NodeState, closed
from aliquot.errors import BadDemand
from aliquot.model import Charge, Placement, Pod, Reason, charges
from aliquot.model.gpu import CORES


@dataclass(frozen=True)
class Guests:
    """Who is on a node in another scheduler's memory."""

    put: Sequence[Pod] = ()
    """Is about to be bound."""
    coming: Sequence[Pod] = ()
    """Is to be put there when those that end have ended: may overlap them, and nobody else."""
    ending: Collection[str] = ()
    """UIDs."""


def largest_first(books: Books, pods: Iterable[Pod]) -> list[Pod]:
    """In the order in which pods pack best, each on its own node."""
    return sorted(pods, key=lambda pod: _order(books, pod.metadata.uid, _demand(books, pod), pod.spec.node_name))


def refusal(books: Books, pod: Pod, demand: Demand, node: str, guests: Guests, *, later: bool = False) -> Reason | None:
    """Why a node cannot take a pod beside these guests; None if it can. `later`: when those that end have ended.

    Who is about to be bound will be placed together with this pod, in the order of their sizes: all must get a part.
    """
    if not books.tally.knows(node):
        return Reason.UNKNOWN_NODE
    scene = _Scene(books, node, pod)
    others = scene.in_order(guests.put)
    place = len(others) if later else bisect(others, scene.order_of(demand), key=scene.order_of)
    if not scene.seat(others[:place]):
        return Reason.NO_CARD_FITS
    reason = books.refusal(scene.beside(guests, later=later), demand, scene.taken_in(demand.request.namespace))
    if reason is None and others[place:] and not scene.seat([demand, *others[place:]]):
        return Reason.NO_CARD_FITS
    return reason


def scores(books: Books, pod: Pod, demand: Demand, guests: Mapping[str, Guests]) -> dict[str, float]:
    """The policy's raw scores of the nodes that can take a pod beside their guests."""
    with books.without(pod), trying(books) as scratch:
        for node, here in guests.items():
            if here.put:
                scene = _Scene(books, node, pod)
                scene.seat(scene.in_order(here.put))
                for guest, placement in scene.seated:
                    scratch.take(guest.request, placement)
        return books.judge(demand, guests).scores(guests)


class _Scene:
    """A node on which guests are seated, without what a pod that asks has there itself."""

    def __init__(self, books: Books, node: str, asking: Pod) -> None:
        own = books.ledger.entry(asking.metadata.uid, node)
        self._books = books
        self._node = node
        self.state = NodeState(books.cards(node), books.ledger.used(node)).minus(own.charges if own else {})
        self.seated: list[tuple[Demand, Placement]] = []

    def in_order(self, pods: Iterable[Pod]) -> list[Demand]:
        """Of those who ask for something."""
        return sorted((demand for pod in pods if (demand := _demand(self._books, pod))), key=self.order_of)

    def order_of(self, demand: Demand) -> tuple[float, str]:
        return _order(self._books, demand.request.uid, demand, self._node)

    def seat(self, guests: Sequence[Demand]) -> bool:
        """Whether all of them have got a part."""
        for guest, (placement, after) in zip(guests, self._books.place_on(self.state, guests), strict=True):
            if placement is None:
                return False
            self.state = after
            self.seated.append((guest, placement))
        return True

    def taken_in(self, namespace: str) -> list[Mapping[str, Charge]]:
        """What the seated guests of a namespace have."""
        return [charges(part, guest.request) for guest, part in self.seated if guest.request.namespace == namespace]

    def beside(self, guests: Guests, *, later: bool) -> NodeState:
        """The node with, of those that come and those that end, whoever needs more of a card; `later` with those that
        come alone."""
        if not guests.coming and not (later and guests.ending):
            return self.state
        entries = (self._books.ledger.entry(uid, self._node) for uid in guests.ending)
        leaving = [entry.charges for entry in entries if entry is not None]
        then = self.state
        for held in leaving:
            then = then.minus(held)
        freed = {uuid for held in leaving for uuid in held}
        for coming in self.in_order(guests.coming):
            then = self._with(then, coming, freed)
        return then if later else replace(self.state, used=_most(self.state.used, then.used))

    def _with(self, state: NodeState, coming: Demand, freed: Collection[str]) -> NodeState:
        """Rather on cards that become free. Who was promised more than there will be is not charged: that is not the
        asking pod's trouble."""
        on_freed = closed(state, state.cards.by_uuid.keys() - freed)
        for cards in (on_freed, state):
            for placement, after in self._books.place_on(cards, [coming]):
                if placement is not None:
                    return replace(state, used=after.used)
        return state


def _demand(books: Books, pod: Pod) -> Demand | None:
    """None also for a pod whose demand cannot be read: it will get nothing."""
    try:
        return books.demand_of(pod)
    except BadDemand:
        return None


def _order(books: Books, uid: str, demand: Demand | None, node: str) -> tuple[float, str]:
    """By size in cards, the largest first: what memory and cores come to on a card of the node."""
    cards = books.cards(node)
    if demand is None or not cards.gpus:
        return 0.0, uid
    gpu = cards.gpus[0]
    parts = ((c.part.cards, c.part.on(gpu, cards.unit_mib)) for c in demand.request.containers)
    return -sum(count * (part.mib / max(1, gpu.mib) + part.cores / CORES) for count, part in parts), uid


def _most(one: Mapping[str, Charge], other: Mapping[str, Charge]) -> dict[str, Charge]:
    """Card by card, whichever is more."""
    return {uuid: _more(one.get(uuid, Charge()), other.get(uuid, Charge())) for uuid in one.keys() | other.keys()}


def _more(one: Charge, other: Charge) -> Charge:
    return Charge(
        max(one.cores, other.cores), max(one.mib, other.mib), max(one.slots, other.slots), max(one.shares, other.shares)
    )
