"""One node as the engine sees it: its cards and what is taken of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aliquot.model import Charge, Gpu, NodeGpus
from aliquot.model.selling import is_shut


@dataclass(frozen=True)
class NodeState:
    """A value: every "what if" makes a new one."""

    cards: NodeGpus
    used: Mapping[str, Charge]

    def taken(self, gpu: Gpu) -> Charge:
        return self.used.get(gpu.uuid, Charge())

    def sells(self, gpu: Gpu) -> bool:
        """Whether anything of a card may be sold now; nothing of an instance while its card is held as a whole."""
        return self.cards.sells(gpu) and not is_shut(gpu, self.used)

    def plus(self, charges: Mapping[str, Charge]) -> "NodeState":
        return replace(self, used={**self.used, **{u: self.used.get(u, Charge()) + c for u, c in charges.items()}})

    def minus(self, charges: Mapping[str, Charge]) -> "NodeState":
        return replace(self, used={**self.used, **{u: self.used.get(u, Charge()) - c for u, c in charges.items()}})
