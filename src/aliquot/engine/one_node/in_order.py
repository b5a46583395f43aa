"""The choice of an agent that serves one container after another: each gets the fullest cards that take it, without a
retry."""

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from aliquot.engine.one_node.obstacles import no_room, unwanted
from aliquot.engine.state import NodeState
from aliquot.model import Gpu, Request
from aliquot.model.selling import left_of

if TYPE_CHECKING:
    from aliquot.engine.arrays import Ints

BLOCK_MIB = 256
"""gpu-admission counts memory in blocks."""

_Number = TypeVar("_Number", int, "Ints")


def fits_in_order(state: NodeState, request: Request) -> bool:
    """`Greedy` with `in_order` does the same for all nodes at once."""
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


def ascending(cores: _Number, mib: _Number) -> _Number:
    """A number that compares as (cores, blocks) would."""
    return (cores << 32) + mib // BLOCK_MIB
