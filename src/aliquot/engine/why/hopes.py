"""Whether a node that refuses a request could take it if one thing were different."""

from aliquot.engine.effort import Effort
from aliquot.engine.one_node.look import try_out
from aliquot.engine.one_node.obstacles import unwanted
from aliquot.engine.state import NodeState
from aliquot.model import Charge, Request, peak_charge
from aliquot.model.selling import left_of


def has_room_in_sum(state: NodeState, request: Request) -> bool:
    """Whether the cards that the request may use have together what it needs, as if they were one card."""
    if not state.cards.gpus:
        return False
    request, unit_mib = request.on(state.cards), state.cards.unit_mib
    largest = max(state.cards.gpus, key=lambda gpu: gpu.mib)
    needs = peak_charge(
        [(c.life, Charge(*(c.part.cards * size for size in c.part.on(largest, unit_mib)))) for c in request.containers]
    )
    if needs.mib > sum(gpu.mib for gpu in state.cards.gpus) - sum(used.mib for used in state.used.values()):
        return False  # in a full cluster this spares a look at most cards
    usable = (gpu for gpu in state.cards.gpus if unwanted(state, gpu, request) is None)
    left = sum((left_of(gpu, state.taken(gpu)) for gpu in usable), Charge())
    return needs.mib <= left.mib and needs.cores <= left.cores and needs.slots <= left.slots


def fits_once_healthy(state: NodeState, request: Request, effort: Effort) -> bool:
    """Whether the request would fit on the node, if that were empty and all of its cards healthy and uncordoned."""
    opened = state.emptied().opened({gpu.uuid for gpu in state.cards.gpus})
    return try_out(opened, request, effort).fits
