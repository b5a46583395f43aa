"""Why a card cannot take a part, with numbers. The arrays follow the same rule."""

from dataclasses import dataclass

from aliquot.engine.state import NodeState
from aliquot.model import Charge, Gpu, Part, Reason, Request, peak_charge
from aliquot.model.observed import can_promise
from aliquot.model.selling import conflict, is_shut, mode_allows, modes_meet


@dataclass(frozen=True, slots=True)
class Obstacle:
    """`text` continues the card's name and contains the numbers."""

    reason: Reason
    text: str


def obstacle(state: NodeState, gpu: Gpu, part: Part, request: Request) -> Obstacle | None:
    """Why a card cannot take the part of a single container; None if it can."""
    return unwanted(state, gpu, request) or no_room(state, gpu, part)


def unwanted(state: NodeState, gpu: Gpu, request: Request) -> Obstacle | None:
    """Obstacles that no other size would remove: the card is not for this pod, or not for sale."""
    cards, constraints = state.cards, request.constraints
    if not cards.serves(request.dialect):
        served = ", ".join(sorted(cards.dialects))
        return Obstacle(Reason.NOT_SERVED, f"is on a node that serves {served}, not {request.dialect}")
    if not constraints.allows_model(gpu.model):
        return Obstacle(Reason.WRONG_MODEL, "is not a model that the pod asks for")
    if not constraints.allows_uuid(gpu.uuid):
        return Obstacle(Reason.WRONG_CARD, f"is not a card that the pod may use: {gpu.uuid}")
    if not constraints.allows_instance(gpu.profile):
        is_what = f"is a MIG instance {gpu.profile}" if gpu.profile else "is not a MIG instance"
        return Obstacle(Reason.WRONG_CARD, f"{is_what}, but the pod wants {constraints.mig or 'a card'}")
    if not can_promise(cards, request):
        return Obstacle(Reason.NOT_PROMISED, "would do, but another device plugin may choose one that does not")
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


def no_room_for_pod(state: NodeState, gpu: Gpu, request: Request) -> Obstacle | None:
    """Why a card that the pod may use can take none of its containers now, or, if they share their cards, not all of
    them."""
    found = [no_room(state, gpu, container.part) for container in request.containers]
    if not request.together:
        return None if None in found else max(filter(None, found), key=lambda each: _NEAR.index(each.reason))
    alone = next(filter(None, found), None)
    return alone or (_all_at_once(state, gpu, request) if len(found) > 1 else None)


_NEAR = (Reason.TOO_LARGE, Reason.WRONG_MODE, Reason.NO_CARD_FITS)
"""A later reason is closer to a fit."""


def _all_at_once(state: NodeState, gpu: Gpu, request: Request) -> Obstacle | None:
    """Containers that share their cards have to fit on each of them together."""
    asked = peak_charge([(c.life, c.part.on(gpu, state.cards.unit_mib)) for c in request.containers])
    if asked.slots and asked.shares:
        return Obstacle(Reason.WRONG_MODE, "cannot be shared in two modes at once")
    if why := conflict(gpu, Charge(), asked):
        return Obstacle(Reason.TOO_LARGE, why)
    why = conflict(gpu, state.taken(gpu), asked)
    return Obstacle(Reason.NO_CARD_FITS, why) if why else None
