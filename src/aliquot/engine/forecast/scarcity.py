"""What becomes scarce: rooms for pods that need several whole cards of one node, and models that some pods insist on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import erfc, sqrt

import numpy as np

from aliquot.engine.arrays import Floats, Ints
from aliquot.engine.card_kinds import NodeKind
from aliquot.engine.workload import WHOLE, CardModel, Workload
from aliquot.model import is_model

_UNSEEN = 0.3
"""How many pods that fill a whole node count as seen before any was: somebody will ask for the largest nodes."""
_ALMOST = 0.9
"""The share of a node's CPU and memory that such a pod asks for: other pods run on every node."""
_NEGLIGIBLE = 1e-3


@dataclass(frozen=True)
class Large:
    """Pods that need `cards` whole cards of one node; `count` of them were seen."""

    cards: int
    cpu: int
    memory: int
    models: tuple[str, ...]
    count: float

    def rooms(self, whole: Ints, cpu: Ints, memory: Ints) -> Ints:
        """How many of them fit on nodes with so many whole cards left, whatever the model."""
        rooms = whole // self.cards
        if self.cpu:
            rooms = np.minimum(rooms, cpu // self.cpu)
        if self.memory:
            rooms = np.minimum(rooms, memory // self.memory)
        return np.asarray(rooms.clip(0))

    def covers(self, other: "Large") -> bool:
        """Whether such a pod takes a room that the other could use."""
        narrower = not other.models or bool(self.models) and set(self.models) <= set(other.models)
        return self.cards >= other.cards and self.cpu >= other.cpu and self.memory >= other.memory and narrower


@dataclass(frozen=True)
class Demand:
    """What the workload says about large and particular pods, and about the mean of all."""

    total: int
    mean: float
    """Cards that a pod asks for."""
    large: tuple[Large, ...]
    particular: tuple[tuple[tuple[str, ...], float], ...]
    """Sets of models that pods insist on, and the cards that these pods ask for."""

    @classmethod
    def of(cls, workload: Workload) -> "Demand":
        asking = [shape for shape in workload.shapes if shape.cards]
        total = sum(shape.weight for shape in asking)
        particular: dict[tuple[str, ...], float] = {}
        for shape in asking:
            if shape.models:
                cards = shape.weight * shape.cards * shape.share / WHOLE
                particular[shape.models] = particular.get(shape.models, 0.0) + cards
        return cls(
            total,
            sum(shape.weight * shape.cards * shape.share for shape in asking) / max(1, total) / WHOLE,
            tuple(
                Large(shape.cards, shape.cpu, shape.memory, shape.models, shape.weight)
                for shape in asking
                if shape.cards > 1
            ),
            tuple(particular.items()),
        )

    def expected(self, kinds: Iterable[NodeKind]) -> tuple[Large, ...]:
        """The large pods that were seen, and for each kind of node one that fills it."""
        whole = (
            Large(kind.cards, int(kind.host.cpu * _ALMOST), int(kind.host.memory * _ALMOST), (kind.model,), _UNSEEN)
            for kind in kinds
            if kind.cards > 1
        )
        return (*self.large, *dict.fromkeys(whole))

    def pods_to_come(self, idle: float) -> float:
        """How many pods fill so many idle cards."""
        return idle / max(self.mean, 1e-9)

    def prices(self, large: Sequence[Large], rooms: Sequence[float], to_come: float) -> Floats:
        """For each kind of large pods, the cards that a lost room costs: as many as it needs, by the chance that there
        will be more such pods than rooms."""
        prices = []
        for each, left in zip(large, rooms, strict=True):
            seen = sum(other.count * (other.cards // each.cards) for other in large if other.covers(each))
            expected = to_come * (seen + sqrt(seen + 1)) / max(1, self.total)
            chance = erfc((left - expected - 0.5) / sqrt(2 * max(expected, 0.25))) / 2
            prices.append(each.cards * chance if chance > _NEGLIGIBLE else 0.0)
        return np.array(prices, np.float64)

    def pressure(self, cards: Sequence[CardModel], idle: Sequence[float], to_come: float) -> Floats:
        """For each model, the part of its idle cards that pods who insist on it will ask for."""
        pressure = np.zeros(len(cards))
        for models, asked in self.particular:
            suits = [any(is_model(name, card.model) for name in models) for card in cards]
            left = sum(free for free, suit in zip(idle, suits, strict=True) if suit)
            if left > 0:
                pressure += np.array(suits) * (to_come * asked / max(1, self.total) / left)
        return pressure
