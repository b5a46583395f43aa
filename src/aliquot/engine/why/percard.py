"""One card and a whole pod: what keeps the card from taking the pod's part of it."""

from aliquot.engine.state import NodeState
from aliquot.engine.why.obstacles import Obstacle, no_room
from aliquot.model import Charge, Gpu, Reason, Request, peak_charge
from aliquot.model.selling import conflict


def no_room_for_pod(state: NodeState, gpu: Gpu, request: Request) -> Obstacle | None:
    """Why a card that the pod may have takes none of its containers now, or, if they share their cards, not all."""
    found = [no_room(state, gpu, container.part) for container in request.containers]
    if not request.together:
        return None if None in found else max(filter(None, found), key=lambda one: _NEAR.index(one.reason))
    alone = next(filter(None, found), None)
    return alone or (_all_at_once(state, gpu, request) if len(found) > 1 else None)


_NEAR = (Reason.TOO_LARGE, Reason.WRONG_MODE, Reason.NO_CARD_FITS)
"""The later, the nearer to a fit."""


def _all_at_once(state: NodeState, gpu: Gpu, request: Request) -> Obstacle | None:
    """Containers that share their cards have to fit on each together."""
    asked = peak_charge([(c.life, c.part.on(gpu, state.cards.unit_mib)) for c in request.containers])
    if asked.slots and asked.shares:
        return Obstacle(Reason.WRONG_MODE, "cannot be shared in two ways at once")
    if why := conflict(gpu, Charge(), asked):
        return Obstacle(Reason.TOO_LARGE, why)
    why = conflict(gpu, state.taken(gpu), asked)
    return Obstacle(Reason.NO_CARD_FITS, why) if why else None
