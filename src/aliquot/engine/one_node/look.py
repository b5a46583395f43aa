"""Whether a pod fits on one node."""

from dataclasses import dataclass
from itertools import islice

from aliquot.engine.effort import Effort, endless
from aliquot.engine.one_node.in_order import fits_in_order
from aliquot.engine.one_node.obstacles import no_room_for_pod, unwanted
from aliquot.engine.one_node.puzzle import puzzle_of
from aliquot.engine.one_node.search import SearchResult, glance, search
from aliquot.engine.state import NodeState
from aliquot.engine.topology import groups, wiring_of
from aliquot.model import Gpu, Request, Topology

_SET_UP_STEPS = 30
"""Steps that it takes to turn a container into its part of the puzzle."""
_CARD_STEPS = 6
"""Steps that it takes to look at a card."""


@dataclass(frozen=True, slots=True)
class FitResult:
    fits: bool
    limited: bool = False
    """The result is unknown, because the search was given up."""


def fits(state: NodeState, request: Request, effort: Effort | None = None) -> bool:
    """Whether a placement is found."""
    return look(state, request, effort).fits


def look(state: NodeState, request: Request, effort: Effort | None = None) -> FitResult:
    """For one container, or several on the same cards, it suffices to count cards that reach each other. Other pods
    need a search, which lasts as long as the effort."""
    request = request.on(state.cards)
    if request.needs_search:
        if request.allocator:
            return FitResult(fits_in_order(state, request))
        effort = effort or endless()
        if not effort.take(_SET_UP_STEPS * len(request.containers)):
            return FitResult(False, limited=True)
        return _seen(search(puzzle_of(state, request), effort=effort))
    count, topology = max(container.part.cards for container in request.containers), request.constraints.topology
    possible = (row for row, gpu in enumerate(state.cards.gpus) if _takes(state, gpu, request))
    if topology is Topology.ANY or count == 1:
        return FitResult(len(list(islice(possible, count))) == count)
    return FitResult(
        any(len(group) >= count for group in groups(wiring_of(state.cards.gpus), list(possible), topology))
    )


def try_out(state: NodeState, request: Request, effort: Effort) -> FitResult:
    """Looks at one of many hypothetical nodes. Each look is quick, but there can be very many, so every look takes
    effort, even for a request that needs no search."""
    if not effort.take(_CARD_STEPS * len(state.cards.gpus)):
        return FitResult(False, limited=True)
    return look(state, request, effort)


def look_once(state: NodeState, request: Request) -> FitResult:
    """What a single glance finds, without effort."""
    return _seen(glance(puzzle_of(state, request)))


def _seen(found: SearchResult) -> FitResult:
    return FitResult(found.cards is not None, found.cards is None and found.limited)


def _takes(state: NodeState, gpu: Gpu, request: Request) -> bool:
    return unwanted(state, gpu, request) is None and no_room_for_pod(state, gpu, request) is None
