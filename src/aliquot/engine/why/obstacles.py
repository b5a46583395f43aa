"""Why one card cannot take one card's part: the plain rule that the arrays agree with, in words with numbers."""

from dataclasses import dataclass

from aliquot.engine.state import NodeState
from aliquot.model import Charge, Gpu, Part, Reason, Request
from aliquot.model.selling import conflict, is_shut, mode_allows, modes_meet


@dataclass(frozen=True, slots=True)
class Obstacle:
    """`text` follows the card's name and tells the numbers."""

    reason: Reason
    text: str


def obstacle(state: NodeState, gpu: Gpu, part: Part, request: Request) -> Obstacle | None:
    """What keeps a card from taking one card's part of a container alone; None if nothing does."""
    return unwanted(state, gpu, request) or no_room(state, gpu, part)


def unwanted(state: NodeState, gpu: Gpu, request: Request) -> Obstacle | None:
    """What no part would change: the card is not for this pod, or not for sale."""
    cards, constraints = state.cards, request.constraints
    if not cards.serves(request.dialect):
        served = ", ".join(sorted(cards.dialects))
        return Obstacle(Reason.NOT_SERVED, f"is on a node that serves {served}, not {request.dialect}")
    if not constraints.allows_model(gpu.model):
        return Obstacle(Reason.WRONG_MODEL, f"is a {gpu.model}")
    if not constraints.allows_uuid(gpu.uuid):
        return Obstacle(Reason.WRONG_CARD, f"is not one that the pod may use: {gpu.uuid}")
    if not constraints.allows_instance(gpu.profile):
        is_what = f"is a MIG instance {gpu.profile}" if gpu.profile else "is no MIG instance"
        return Obstacle(Reason.WRONG_CARD, f"{is_what}, {constraints.mig or 'a card'} is wanted")
    if not state.sells(gpu):
        return Obstacle(Reason.NOT_SELLABLE, _why_not_sold(gpu, state))
    return None


def _why_not_sold(gpu: Gpu, state: NodeState) -> str:
    if not gpu.healthy:
        return "is unhealthy"
    if is_shut(gpu, state.used):
        return "is an instance of a card that a pod holds as a whole"
    return "is cordoned" if gpu.cordoned else "is cut into MIG instances"


def no_room(state: NodeState, gpu: Gpu, part: Part) -> Obstacle | None:
    asked = part.on(gpu, state.cards.unit_mib)
    if why := conflict(gpu, Charge(), asked):
        return Obstacle(Reason.TOO_LARGE if mode_allows(gpu, asked) else Reason.WRONG_MODE, why)
    used = state.taken(gpu)
    if why := conflict(gpu, used, asked):
        return Obstacle(Reason.NO_CARD_FITS if modes_meet(used, asked) else Reason.WRONG_MODE, why)
    return None
