"""A node on which an original places a pod's containers one after another."""

from collections.abc import Iterable

from aliquot.engine.one_node.obstacles import no_room, unwanted
from aliquot.engine.state import NodeState
from aliquot.model import Charge, Gpu, Part, Request
from aliquot.model.selling import left_of


class NodeFill:
    def __init__(self, state: NodeState, request: Request) -> None:
        self._state = state
        self.cards = tuple(gpu for gpu in state.cards.gpus if unwanted(state, gpu, request) is None)
        """The cards that the pod may use at all."""

    def left(self, gpu: Gpu) -> Charge:
        return left_of(gpu, self._state.taken(gpu))

    def parts_on(self, gpu: Gpu) -> int:
        taken = self._state.taken(gpu)
        return taken.shares + taken.slots

    def takes(self, gpu: Gpu, part: Part) -> bool:
        return no_room(self._state, gpu, part) is None

    def put(self, gpus: Iterable[Gpu], part: Part) -> None:
        self._state = self._state.plus({gpu.uuid: self._cost(gpu, part) for gpu in gpus})

    def _cost(self, gpu: Gpu, part: Part) -> Charge:
        return part.on(gpu, self._state.cards.unit_mib)
