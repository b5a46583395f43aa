"""What an agent finds that gives cards to one container after another: the fullest that take it, and no second try."""

from functools import partial

from aliquot.engine.policies.admission import ascending
from aliquot.engine.state import NodeState
from aliquot.engine.why.obstacles import no_room, unwanted
from aliquot.model import Gpu, Request
from aliquot.model.selling import left_of


def fits_in_order(state: NodeState, request: Request) -> bool:
    """The same for all nodes at once is `Greedy` in the order of the pod."""
    gpus = [gpu for gpu in state.cards.gpus if unwanted(state, gpu, request) is None]
    for part in (container.part for container in request.containers):
        open_to_it = [gpu for gpu in gpus if no_room(state, gpu, part) is None]
        chosen = sorted(open_to_it, key=partial(_fullest_first, state))[: part.cards]
        if len(chosen) < part.cards:
            return False
        state = state.plus({gpu.uuid: part.on(gpu, state.cards.unit_mib) for gpu in chosen})
    return True


def _fullest_first(state: NodeState, gpu: Gpu) -> int:
    left = left_of(gpu, state.taken(gpu))
    return ascending(left.cores, left.mib)
