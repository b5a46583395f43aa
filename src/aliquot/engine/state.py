"""One node as the engine sees it: its cards and what is taken of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aliquot.model import Charge, Gpu, NodeGpus


@dataclass(frozen=True)
class NodeState:
    """A value: every "what if" makes a new one."""

    cards: NodeGpus
    used: Mapping[str, Charge]

    def taken(self, gpu: Gpu) -> Charge:
        return self.used.get(gpu.uuid, Charge())

    def plus(self, charges: Mapping[str, Charge]) -> "NodeState":
        return replace(self, used={**self.used, **{u: self.used.get(u, Charge()) + c for u, c in charges.items()}})

    def minus(self, charges: Mapping[str, Charge]) -> "NodeState":
        return replace(self, used={**self.used, **{u: self.used.get(u, Charge()) - c for u, c in charges.items()}})
