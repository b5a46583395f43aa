"""Why a pod fits or does not fit on one node, card by card."""

from dataclasses import dataclass, replace

from aliquot.engine.effort import Effort, endless
from aliquot.engine.one_node.look import fits, look, look_once
from aliquot.engine.one_node.obstacles import Obstacle, no_room_for_pod, unwanted
from aliquot.engine.quotas.quota import QuotaCheck
from aliquot.engine.state import NodeState
from aliquot.model import Charge, Gpu, Reason, Request, Topology
from aliquot.model.observed import can_promise
from aliquot.model.selling import left_of, mode_allows, modes_meet


@dataclass(frozen=True)
class CardFinding:
    """A card, what is left of it, and why it cannot take the pod's part. If `reason` is None, it can.

    If the pod's containers choose their own cards, a card fits if it can take any of them.
    """

    gpu: Gpu
    left: Charge
    reason: Reason | None = None
    obstacle: str = ""

    @property
    def fits(self) -> bool:
        return self.reason is None

    def text(self) -> str:
        state = self.obstacle or f"can take it: {self.left.mib:,} MiB and {self.left.cores} % of cores left"
        return f"GPU {self.gpu.index} ({self.gpu.model}, {self.gpu.mib:,} MiB) {state}"


@dataclass(frozen=True)
class NodeFinding:
    """A node and its cards. If `reason` is None, the whole pod fits."""

    node: str
    reason: Reason | None
    cards: tuple[CardFinding, ...]

    @property
    def fits(self) -> bool:
        return self.reason is None

    def text(self) -> str:
        verdict = self.reason.value if self.reason else "the pod fits"
        return "\n".join([f"{self.node}: {verdict}", *(f"  {card.text()}" for card in self.cards)])


def explain_node(
    state: NodeState, request: Request, quota: QuotaCheck | None = None, effort: Effort | None = None
) -> NodeFinding:
    """Every card of a node with its numbers."""
    cards = []
    for gpu in state.cards.gpus:
        found, left = card_obstacle(state, gpu, request, quota), left_of(gpu, state.taken(gpu))
        cards.append(CardFinding(gpu, left, found.reason, found.text) if found else CardFinding(gpu, left))
    return NodeFinding(state.cards.node, node_reason(state, request, quota, effort), tuple(cards))


def card_obstacle(state: NodeState, gpu: Gpu, request: Request, quota: QuotaCheck | None = None) -> Obstacle | None:
    """Why a card cannot take the pod's part, including the pod's constraints and its quota."""
    request = request.on(state.cards)
    return unwanted(state, gpu, request) or _by_quota(state, gpu, quota) or no_room_for_pod(state, gpu, request)


def _by_quota(state: NodeState, gpu: Gpu, quota: QuotaCheck | None) -> Obstacle | None:
    if quota is None:
        return None
    if reason := quota.refuses_node(state.cards):
        pool = state.cards.pool
        return Obstacle(reason, f"is in pool {pool}" if pool else "is on a node without a pool")
    reason = quota.refuses_card(state.cards, gpu)
    return Obstacle(reason, f"is refused by the namespace's quota: {quota.why(state.cards, gpu)}") if reason else None


def node_reason(
    state: NodeState, request: Request, quota: QuotaCheck | None = None, effort: Effort | None = None
) -> Reason | None:
    """Why the whole pod does not fit on a node; None if it does. `judge` gives the same reason."""
    cards, request, effort = state.cards, request.on(state.cards), effort or endless()
    if not cards.gpus:
        return Reason.TOO_LARGE if cards.rest_mib and cards.serves(request.dialect) else Reason.NO_GPUS
    if not cards.serves(request.dialect):
        return Reason.NOT_SERVED
    if quota and (refused := quota.refuses_node(cards)):
        return refused
    if not can_promise(cards, request):
        return Reason.NOT_PROMISED
    permitted = quota.permits(state) if quota else state
    found = look(permitted, request, effort)
    if found.limited and effort.ran_out and request.needs_search:
        found = look_once(permitted, request)
    if found.fits:
        return None
    if found.limited:
        return Reason.SEARCH_LIMIT
    return _no_card(state, request, quota) or _no_room(permitted, request, effort)


def _no_card(state: NodeState, request: Request, quota: QuotaCheck | None) -> Reason | None:
    """Why no card of the node is for this pod, even if all were empty."""
    cards, constraints = state.cards, request.constraints
    left = [gpu for gpu in cards.gpus if constraints.allows_model(gpu.model)]
    if not left:
        return Reason.WRONG_MODEL
    refused = {gpu.uuid: quota.refuses_card(cards, gpu) for gpu in left} if quota else {}
    left = [gpu for gpu in left if not refused.get(gpu.uuid)]
    if not left:
        return Reason.OVER_QUOTA if Reason.OVER_QUOTA in refused.values() else Reason.NOT_IN_QUOTA
    left = [gpu for gpu in left if constraints.allows_uuid(gpu.uuid) and constraints.allows_instance(gpu.profile)]
    if not left:
        return Reason.WRONG_CARD
    return None if any(map(cards.sells, left)) else Reason.NOT_SELLABLE


def _no_room(state: NodeState, request: Request, effort: Effort) -> Reason:
    """Some cards match, but they are too few, too small, too full, or shared in another mode."""
    gpus = [gpu for gpu in state.cards.gpus if unwanted(state, gpu, request) is None]
    asked = [[(gpu, c.part.on(gpu, state.cards.unit_mib)) for gpu in gpus] for c in request.containers]
    if not all(any(mode_allows(gpu, charge) for gpu, charge in ways) for ways in asked):
        return Reason.WRONG_MODE
    anyhow = replace(request, constraints=replace(request.constraints, topology=Topology.ANY))
    if _never_fits(state, anyhow, effort):
        return Reason.TOO_LARGE
    if not all(any(modes_meet(state.taken(gpu), charge) for gpu, charge in ways) for ways in asked):
        return Reason.WRONG_MODE
    if anyhow != request and (fits(state, anyhow, effort) or _never_fits(state, request, effort)):
        return Reason.NO_TOPOLOGY
    return Reason.NO_CARD_FITS


def _never_fits(state: NodeState, request: Request, effort: Effort) -> bool:
    """Whether the request certainly does not fit on this node even if it is empty."""
    found = look(state.emptied(), request, effort)
    return not found.fits and not found.limited
