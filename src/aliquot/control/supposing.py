"""Questions about nodes on which another scheduler has put pods that are not bound yet.

A scheduler of gangs binds a gang when all of it has a place. Until then only its own memory says who is where, and it
sends that along: those pods are charged as if they were here, in a fixed order, each with the part that late placement
would give it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from aliquot.control.books import Books
from aliquot.control.scratch import Scratch, trying
from aliquot.dialects import Demand
from aliquot.engine import NodeState, closed
from aliquot.errors import BadDemand
from aliquot.model import Charge, Gpu, Pod, Reason, charges
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

    def __bool__(self) -> bool:
        return bool(self.put or self.coming or self.ending)


def largest_first(books: Books, pods: Iterable[Pod], node: str = "") -> list[Pod]:
    """In the order in which pods pack best on a node, or each on its own."""
    return sorted(pods, key=lambda pod: (-_size(books, pod, node or pod.spec.node_name), pod.metadata.uid))


def _size(books: Books, pod: Pod, node: str) -> float:
    """In cards: what memory and cores come to on a card of the node."""
    demand, cards = _demand(books, pod), books.cards(node)
    if demand is None:
        return 0.0
    gpu = cards.gpus[0] if cards.gpus else Gpu("", 0, 0, "", 1)
    parts = ((c.part.cards, c.part.on(gpu, cards.unit_mib)) for c in demand.request.containers)
    return sum(count * (part.mib / max(1, gpu.mib) + part.cores / CORES) for count, part in parts)


def refusal(books: Books, pod: Pod, demand: Demand, node: str, guests: Guests, *, later: bool = False) -> Reason | None:
    """Why a node cannot take a pod beside these guests; None if it can. `later`: when those that end have ended.

    Who is about to be bound will be placed together with this pod, in the order of their sizes: all must get a part.
    """
    if not books.tally.knows(node):
        return Reason.UNKNOWN_NODE
    with books.without(pod), trying(books) as scratch:
        everybody = largest_first(books, guests.put, node) if later else largest_first(books, [*guests.put, pod], node)
        for other in everybody:
            if other is pod and (reason := books.refusal(_beside(books, node, guests, later=False), demand)):
                return reason
            if not _take(books, scratch, node, other):
                return Reason.NO_CARD_FITS
        return books.refusal(_beside(books, node, guests, later=True), demand) if later else None


def scores(books: Books, pod: Pod, demand: Demand, guests: Mapping[str, Guests]) -> dict[str, float]:
    """The policy's raw scores of the nodes that can take a pod beside their guests."""
    with books.without(pod), trying(books) as scratch:
        for node, here in guests.items():
            for other in largest_first(books, here.put, node) if here.put else ():
                _take(books, scratch, node, other)
        return books.judge(demand).scores(guests)


def _demand(books: Books, pod: Pod) -> Demand | None:
    """None also for a pod whose demand cannot be read: it will get nothing."""
    try:
        return books.demand_of(pod)
    except BadDemand:
        return None


def _take(books: Books, scratch: Scratch, node: str, pod: Pod) -> bool:
    """Whether a pod has got a part, or needs none."""
    demand = _demand(books, pod)
    if demand is None:
        return True
    placement = books.place_on(_state(books, node), demand)
    return placement is not None and scratch.take(demand.request, placement)


def _state(books: Books, node: str) -> NodeState:
    return NodeState(books.cards(node), books.ledger.used(node))


def _beside(books: Books, node: str, guests: Guests, *, later: bool) -> NodeState:
    """The node with, of those that come and those that end, whoever needs more of a card; `later` with those that come
    alone."""
    now = _state(books, node)
    if not guests.coming and not (later and guests.ending):
        return now
    leaving = [entry.charges for uid in guests.ending if (entry := books.ledger.entry(uid, node)) is not None]
    then = now
    for held in leaving:
        then = then.minus(held)
    for pod in largest_first(books, guests.coming, node):
        if (coming := _demand(books, pod)) is not None:
            then = _with(books, then, coming, {uuid for held in leaving for uuid in held})
    return then if later else replace(now, used=_most(now.used, then.used))


def _with(books: Books, state: NodeState, coming: Demand, freed: Collection[str]) -> NodeState:
    """Rather on cards that become free. Who was promised more than there will be is not charged: that is not the asking
    pod's trouble."""
    on_freed = closed(state, state.cards.by_uuid.keys() - freed)
    placement = books.place_on(on_freed, coming) or books.place_on(state, coming)
    return state.plus(charges(placement, coming.request)) if placement is not None else state


def _most(one: Mapping[str, Charge], other: Mapping[str, Charge]) -> dict[str, Charge]:
    """Card by card, whichever is more."""
    return {uuid: _more(one.get(uuid, Charge()), other.get(uuid, Charge())) for uuid in one.keys() | other.keys()}


def _more(one: Charge, other: Charge) -> Charge:
    return Charge(
        max(one.cores, other.cores), max(one.mib, other.mib), max(one.slots, other.slots), max(one.shares, other.shares)
    )
