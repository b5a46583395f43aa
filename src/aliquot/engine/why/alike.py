"""Which nodes and cards make no difference to a request, so that only one of them has to be examined."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import fields
from operator import attrgetter

from aliquot.engine.state import NodeState
from aliquot.model import Gpu, NodeGpus, Request, Topology
from aliquot.model.observed import can_promise
from aliquot.model.selling import is_shut, left_of

_NOT_JUDGED = frozenset(("node", "gpus", "registered", "driver"))
"""Fields of a node that make no difference to a request."""

_of_card = attrgetter(*(each.name for each in fields(Gpu) if each.metadata.get("is_judged", True)))
_of_node = attrgetter(*(each.name for each in fields(NodeGpus) if each.name not in _NOT_JUDGED), "are_made_up")


def shape(state: NodeState, request: Request) -> Hashable:
    """Equal for nodes on which the request has the same result, card by card."""
    shapes = [card_shape(state, gpu, request) for gpu in state.cards.gpus]
    if request.constraints.topology is Topology.ANY:
        return label_shape(state, request), frozenset(Counter(shapes).items())
    return label_shape(state, request), *shapes


def label_shape(state: NodeState, request: Request) -> Hashable:
    """What counts of a node besides its cards."""
    return _of_node(state.cards), can_promise(state.cards, request)


def card_shape(state: NodeState, gpu: Gpu, request: Request) -> Hashable:
    """Equal for cards that can take the same parts of the request, on nodes with the same labels."""
    constraints = request.constraints
    wired = () if constraints.topology is Topology.ANY else (gpu.index, gpu.numa, _links(state, gpu))
    is_parent, is_allowed = gpu.uuid in state.cards.parents, constraints.allows_uuid(gpu.uuid)
    return _of_card(gpu), state.taken(gpu), is_parent, is_shut(gpu, state.used), is_allowed, wired


def _links(state: NodeState, gpu: Gpu) -> tuple[tuple[int, int], ...]:
    by_uuid = state.cards.by_uuid
    return tuple((by_uuid[link.uuid].index, link.score) for link in gpu.links if link.uuid in by_uuid)


def distinct(states: Iterable[NodeState], request: Request) -> list[NodeState]:
    """One node of each shape, those with the freest card first."""
    of_shape: dict[int, NodeState] = {}
    for state in states:
        # kept as numbers: the shapes of 5,000 nodes are so many objects that collecting garbage takes half a second
        of_shape.setdefault(hash(shape(state, request)), state)
    return sorted(of_shape.values(), key=freest, reverse=True)


def freest(state: NodeState) -> tuple[int, int]:
    """The most memory and the most cores that are left on any sellable card."""
    left = [left_of(gpu, state.taken(gpu)) for gpu in state.cards.gpus if state.sells(gpu)]
    return max((card.mib for card in left), default=0), max((card.cores for card in left), default=0)
