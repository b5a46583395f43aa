"""Nodes as they might be, and which of them make no difference to a request."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from aliquot.engine.effort import Effort, endless
from aliquot.engine.one_node.in_order import fits_in_order
from aliquot.engine.one_node.puzzle import puzzle_of
from aliquot.engine.one_node.search import Found, glance, search
from aliquot.engine.state import NodeState
from aliquot.engine.topology import groups, wiring_of
from aliquot.engine.why.obstacles import unwanted
from aliquot.engine.why.percard import no_room_for_pod
from aliquot.model import Gpu, Request, Topology
from aliquot.model.selling import is_shut, left_of

_CARD_STEPS = 6
"""What it takes to look at a card."""
_SET_UP_STEPS = 30
"""What it takes to write down a container's part of the puzzle."""


@dataclass(frozen=True, slots=True)
class Look:
    fits: bool
    limited: bool = False
    """It was not found out: the search was given up."""


def fits(state: NodeState, request: Request, effort: Effort | None = None) -> bool:
    """Whether a way is found."""
    return look(state, request, effort).fits


def look(state: NodeState, request: Request, effort: Effort | None = None) -> Look:
    """For one container, or several on the same cards, enough cards that reach each other are a way. Others are
    searched, as long as the effort lasts."""
    request = request.on(state.cards)
    if request.needs_search:
        if request.allocator:
            return Look(fits_in_order(state, request))
        effort = effort or endless()
        if not effort.take(_SET_UP_STEPS * len(request.containers)):
            return Look(False, limited=True)
        return _seen(search(puzzle_of(state, request), effort=effort))
    count, topology = max(container.part.cards for container in request.containers), request.constraints.topology
    possible = (row for row, gpu in enumerate(state.cards.gpus) if _takes(state, gpu, request))
    if topology is Topology.ANY or count == 1:
        return Look(len(list(islice(possible, count))) == count)
    return Look(any(len(group) >= count for group in groups(wiring_of(state.cards.gpus), list(possible), topology)))


def try_out(state: NodeState, request: Request, effort: Effort) -> Look:
    """Look at one of many nodes as they might be. Each look is quick and there is no end of them, so every one takes
    its effort, also for a request that needs no search."""
    if not effort.take(_CARD_STEPS * len(state.cards.gpus)):
        return Look(False, limited=True)
    return look(state, request, effort)


def look_once(state: NodeState, request: Request) -> Look:
    """What can be seen without effort."""
    return _seen(glance(puzzle_of(state, request)))


def _seen(found: Found) -> Look:
    return Look(found.cards is not None, found.cards is None and found.limited)


def _takes(state: NodeState, gpu: Gpu, request: Request) -> bool:
    return unwanted(state, gpu, request) is None and no_room_for_pod(state, gpu, request) is None


def closed(state: NodeState, uuids: Collection[str]) -> NodeState:
    """The node if it sold nothing of these cards."""
    return _changed(state, {gpu.uuid: replace(gpu, cordoned=True) for gpu in state.cards.gpus if gpu.uuid in uuids})


def opened(state: NodeState, uuids: Collection[str]) -> NodeState:
    """The node if these cards were healthy and not cordoned."""
    return _changed(
        state, {gpu.uuid: replace(gpu, healthy=True, cordoned=False) for gpu in state.cards.gpus if gpu.uuid in uuids}
    )


def emptied(state: NodeState) -> NodeState:
    """The node if nobody held anything there."""
    return replace(state, used={})


def _changed(state: NodeState, gpus: Mapping[str, Gpu]) -> NodeState:
    if not gpus:
        return state
    cards = state.cards
    return replace(state, cards=replace(cards, gpus=tuple(gpus.get(gpu.uuid, gpu) for gpu in cards.gpus)))


def shape(state: NodeState, request: Request) -> Hashable:
    """Equal for nodes on which the request has the same fate, card by card."""
    shapes = [card_shape(state, gpu, request) for gpu in state.cards.gpus]
    if request.constraints.topology is Topology.ANY:
        shapes.sort()
    return label_shape(state), *shapes


def label_shape(state: NodeState) -> Hashable:
    """What counts of a node beside its cards."""
    cards = state.cards
    return cards.model, cards.pool, cards.unit_mib, cards.dialects, cards.are_made_up


def card_shape(state: NodeState, gpu: Gpu, request: Request) -> tuple[Any, ...]:
    """Equal for cards of nodes with the same labels that take the same of the request."""
    used, constraints = state.taken(gpu), request.constraints
    wired = () if constraints.topology is Topology.ANY else (gpu.index, gpu.numa, _links(state, gpu))
    return (
        gpu.model,
        gpu.mib,
        gpu.slots,
        gpu.mode.value,
        gpu.profile,
        gpu.healthy,
        gpu.cordoned,
        gpu.uuid in state.cards.parents,
        is_shut(gpu, state.used),
        constraints.allows_uuid(gpu.uuid),
        used.cores,
        used.mib,
        used.slots,
        used.shares,
        wired,
    )


def _links(state: NodeState, gpu: Gpu) -> tuple[tuple[int, int], ...]:
    by_uuid = state.cards.by_uuid
    return tuple((by_uuid[link.uuid].index, link.score) for link in gpu.links if link.uuid in by_uuid)


def distinct(states: Iterable[NodeState], request: Request) -> list[NodeState]:
    """One node of each shape, those with the freest card first."""
    of_shape: dict[Hashable, NodeState] = {}
    for state in states:
        of_shape.setdefault(shape(state, request), state)
    return sorted(of_shape.values(), key=freest, reverse=True)


def freest(state: NodeState) -> tuple[int, int]:
    """What is left of the card with the most memory left, and the most cores that are left of any."""
    left = [left_of(gpu, state.taken(gpu)) for gpu in state.cards.gpus if state.sells(gpu)]
    return max((card.mib for card in left), default=0), max((card.cores for card in left), default=0)
