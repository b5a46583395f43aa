"""Which nodes and cards make no difference to a request, so that only one of them has to be examined."""

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


class Shapes:
    """Numbers the shapes of nodes: nodes with the same number have the same result for a request, card by card. Each
    node is examined once."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._is_ordered = request.constraints.topology is not Topology.ANY
        self._cards: dict[Hashable, int] = {}
        self._nodes: dict[Hashable, int] = {}
        self._known: dict[int, tuple[NodeState, int]] = {}
        """By identity: to compare states takes as long as to examine them."""
        self._freest: dict[int, tuple[int, int]] = {}

    def of(self, state: NodeState) -> int:
        known = self._known.get(id(state))
        if known is None:
            known = self._known[id(state)] = state, self._examine(state)
        return known[1]

    def _examine(self, state: NodeState) -> int:
        request, numbers = self.request, self._cards
        cards = [numbers.setdefault(card_shape(state, gpu, request), len(numbers)) for gpu in state.cards.gpus]
        if not self._is_ordered:
            cards.sort()
        return self._nodes.setdefault((label_shape(state, request), *cards), len(self._nodes))

    def freest(self, state: NodeState) -> tuple[int, int]:
        """The most memory and the most cores that are left on any sellable card."""
        number = self.of(state)
        if number not in self._freest:
            left = [left_of(gpu, state.taken(gpu)) for gpu in state.cards.gpus if state.sells(gpu)]
            most = max((card.mib for card in left), default=0), max((card.cores for card in left), default=0)
            self._freest[number] = most
        return self._freest[number]

    def distinct(self, states: Iterable[NodeState]) -> list[NodeState]:
        """One node of each shape, those with the freest card first."""
        of_shape: dict[int, NodeState] = {}
        for state in states:
            of_shape.setdefault(self.of(state), state)
        return sorted(of_shape.values(), key=self.freest, reverse=True)


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
