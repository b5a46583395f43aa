"""One node as the engine sees it: its cards and what is taken of them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from aliquot.model import Charge, Gpu, NodeGpus
from aliquot.model.selling import is_shut

_NOTHING = Charge()


@dataclass(frozen=True, slots=True)
class NodeState:
    """An immutable value: every hypothetical node is a new one."""

    cards: NodeGpus
    used: Mapping[str, Charge]

    def taken(self, gpu: Gpu) -> Charge:
        return self.used.get(gpu.uuid, _NOTHING)

    def sells(self, gpu: Gpu) -> bool:
        """Whether anything of a card may be sold now; nothing of an instance while its card is held as a whole."""
        return self.cards.sells(gpu) and not is_shut(gpu, self.used)

    def plus(self, charges: Mapping[str, Charge]) -> "NodeState":
        return replace(self, used={**self.used, **{u: self.used.get(u, Charge()) + c for u, c in charges.items()}})

    def minus(self, charges: Mapping[str, Charge]) -> "NodeState":
        return replace(self, used={**self.used, **{u: self.used.get(u, Charge()) - c for u, c in charges.items()}})

    def closed(self, uuids: Collection[str]) -> "NodeState":
        """The node if it sold nothing of these cards."""
        return self._changed({gpu.uuid: replace(gpu, cordoned=True) for gpu in self.cards.gpus if gpu.uuid in uuids})

    def opened(self, uuids: Collection[str]) -> "NodeState":
        """The node if these cards were healthy and not cordoned."""
        gpus = (gpu for gpu in self.cards.gpus if gpu.uuid in uuids)
        return self._changed({gpu.uuid: replace(gpu, healthy=True, cordoned=False) for gpu in gpus})

    def emptied(self) -> "NodeState":
        """The node if no pod held anything there."""
        return replace(self, used={})

    def _changed(self, gpus: Mapping[str, Gpu]) -> "NodeState":
        if not gpus:
            return self
        cards = self.cards
        return replace(self, cards=replace(cards, gpus=tuple(gpus.get(gpu.uuid, gpu) for gpu in cards.gpus)))
