"""Why a request fits or does not fit, summarized for a whole cluster."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aliquot.engine.effort import Effort
from aliquot.engine.holder import Holder
from aliquot.engine.needs import cards_text, needs_text
from aliquot.engine.quotas.quota import QuotaCheck
from aliquot.engine.state import NodeState
from aliquot.engine.why.alike import Shapes, card_shape, label_shape
from aliquot.engine.why.findings import card_obstacle, node_reason
from aliquot.engine.why.relax import Relaxation, relaxations
from aliquot.model import OF_MODEL, Charge, Gpu, Reason, Request, Topology
from aliquot.model.selling import left_of

_MAX_NOTES = 6
_BY_SIZE = frozenset((None, Reason.TOO_LARGE, Reason.WRONG_MODE, Reason.NO_CARD_FITS))
"""What refuses a card that the pod may use."""


@dataclass(frozen=True)
class Group:
    """Nodes with the same result. If `reason` is None, the pod fits there. `detail` has the numbers, if there are
    any."""

    reason: Reason | None
    nodes: tuple[str, ...]
    detail: str = ""

    def text(self) -> str:
        nodes = "1 node" if len(self.nodes) == 1 else f"{len(self.nodes):,} nodes"
        verdict = self.reason.value if self.reason else "the pod fits"
        return f"{nodes}: {verdict}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True)
class Explanation:
    """Groups: first where the pod fits, then the largest. Relaxations are sought only if the pod fits nowhere."""

    request: Request
    groups: tuple[Group, ...]
    relaxations: tuple[Relaxation, ...] = ()

    @property
    def fits(self) -> bool:
        return any(group.reason is None for group in self.groups)

    def text(self) -> str:
        lines = [f"{self.request.pod} needs {needs_text(self.request)}"]
        lines += [f"  {group.text()}" for group in self.groups] or ["  there is no node"]
        if self.relaxations:
            lines += ["It fits", *(f"  {relaxation.text}" for relaxation in self.relaxations)]
        return "\n".join(lines)


def explain(
    states: Mapping[str, NodeState],
    request: Request,
    quota: QuotaCheck | None = None,
    holders: Mapping[str, Sequence[Holder]] | None = None,
    effort: Effort | None = None,
    *,
    closed: Collection[str] = (),
) -> Explanation:
    """The result of a request on every node, grouped, and what would make it fit. `holders` are, by node, the pods that
    the request could wait for. On nodes that are `closed` to its pod for other reasons nothing would."""
    effort = effort or Effort()
    survey = _Survey(request, quota, effort)
    for node, state in states.items():
        survey.add(node, state)
    if None in survey.tallies:
        return Explanation(request, tuple(survey.groups()))
    open_states = {node: state for node, state in states.items() if node not in closed}
    nearest = tuple(relaxations(open_states, request, quota, holders or {}, effort, survey.shapes))
    return Explanation(request, tuple(survey.groups()), nearest)


@dataclass(frozen=True)
class _Card:
    """What is worth reporting about a card. It is the same for all cards of a shape."""

    left: Charge
    size: int
    refused: Reason | None
    outcome: int
    """The number of its contribution to the result of its node."""


class _Survey:
    """Examines every node, and nodes that are alike only once."""

    def __init__(self, request: Request, quota: QuotaCheck | None, effort: Effort) -> None:
        self.request = request
        self.effort = effort
        self.quota = quota
        self.shapes = Shapes(request)
        self.tallies: dict[Reason | None, _GroupTotals] = {}
        self._tally_of: dict[int, _GroupTotals] = {}
        """By the shape of nodes."""
        self._cards: dict[Hashable, dict[Hashable, _Card]] = {}
        """By what counts of the node, and of the card."""
        self._outcomes: dict[Hashable, int] = {}
        self._reasons: dict[Hashable, Reason | None] = {}
        self._notes: dict[Hashable, frozenset[str]] = {}
        self._by_shape = request.needs_search or request.constraints.topology is not Topology.ANY

    def add(self, node: str, state: NodeState) -> None:
        shape = self.shapes.of(state)
        if shape not in self._tally_of:
            self._tally_of[shape] = self._examine(shape, state)
        self._tally_of[shape].nodes.append(node)

    def _examine(self, shape: int, state: NodeState) -> "_GroupTotals":
        labels = label_shape(state, self.request)
        known = self._cards.setdefault(labels, {})
        cards = [self._card(known, state, gpu) for gpu in state.cards.gpus]
        key = shape if self._by_shape else (labels, *sorted(card.outcome for card in cards))
        if key not in self._reasons:
            self._reasons[key] = node_reason(state, self.request, self.quota, self.effort)
            self._notes[key] = frozenset(_notes(state, self._reasons[key], self.quota))
        tally = self.tallies.setdefault(self._reasons[key], _GroupTotals())
        tally.add(cards, self._notes[key])
        return tally

    def groups(self) -> list[Group]:
        """First where the pod fits, then the largest group."""
        groups = [
            Group(reason, tuple(sorted(totals.nodes)), totals.detail(reason, self.request))
            for reason, totals in self.tallies.items()
        ]
        return sorted(groups, key=lambda group: (group.reason is not None, -len(group.nodes), group.nodes))

    def _card(self, known: dict[Hashable, _Card], state: NodeState, gpu: Gpu) -> _Card:
        key = card_shape(state, gpu, self.request)
        card = known.get(key)
        if card is None:
            card = known[key] = self._look(state, gpu)
        return card

    def _look(self, state: NodeState, gpu: Gpu) -> _Card:
        found, used = card_obstacle(state, gpu, self.request, self.quota), state.taken(gpu)
        refused = found.reason if found else None
        empty = card_shape(state.emptied(), gpu, self.request)
        outcome = (empty, refused, used.slots > 0, used.shares > 0)
        return _Card(left_of(gpu, used), gpu.mib, refused, self._outcomes.setdefault(outcome, len(self._outcomes)))


def _notes(state: NodeState, reason: Reason | None, quota: QuotaCheck | None) -> Iterable[str]:
    cards = state.cards
    if reason is Reason.NOT_SERVED:
        yield from cards.dialects
    elif reason is Reason.WRONG_POOL:
        yield cards.pool or "no pool"
    elif reason is Reason.WRONG_MODEL:
        yield from (gpu.model for gpu in cards.gpus)
    elif reason in OF_MODEL and quota is not None:
        yield from filter(None, (quota.why(cards, gpu) for gpu in cards.gpus))


class _GroupTotals:
    """The nodes of one group, and the best values among them."""

    def __init__(self) -> None:
        self.nodes: list[str] = []
        self.cards = self.open_cards = self.mib = self.cores = self.size = 0
        self.notes: set[str] = set()

    def add(self, cards: Sequence[_Card], notes: frozenset[str]) -> None:
        """What nodes of one shape have."""
        self.notes |= notes
        had = [card for card in cards if card.refused in _BY_SIZE]
        self.cards = max(self.cards, len(had))
        self.open_cards = max(self.open_cards, sum(card.refused is None for card in had))
        for card in had:
            self.mib = max(self.mib, card.left.mib)
            self.cores = max(self.cores, card.left.cores)
            self.size = max(self.size, card.size)

    def detail(self, reason: Reason | None, request: Request) -> str:
        match reason:
            case Reason.NOT_SERVED:
                return f"served: {self._noted()}"
            case Reason.WRONG_POOL | Reason.WRONG_MODEL | Reason.NOT_IN_QUOTA | Reason.OVER_QUOTA:
                return self._noted()
            case Reason.NO_CARD_FITS | Reason.NO_TOPOLOGY:
                return self._room(request)
            case Reason.TOO_LARGE:
                most = cards_text(self.cards)
                return f"the largest card has {self.size:,} MiB, and no node has more than {most} for the pod"
            case _:
                return ""

    def _room(self, request: Request) -> str:
        cores = f" and {self.cores} % of cores" if any(c.part.cores for c in request.containers) else ""
        freest = f"the freest card has {self.mib:,} MiB{cores} left"
        most = max(container.part.cards for container in request.containers)
        return freest if most == 1 else f"{freest}, at most {self.open_cards} of {most} cards have room on one node"

    def _noted(self) -> str:
        notes = sorted(self.notes)
        more = [f"{len(notes) - _MAX_NOTES} more"] if len(notes) > _MAX_NOTES else []
        return "; ".join(notes[:_MAX_NOTES] + more)
