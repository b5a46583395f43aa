"""What becomes scarce: rooms for pods that need several whole cards of a node, and models that some pods insist on."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum, sqrt

import numpy as np

from aliquot.engine.arrays import Floats, Ints
from aliquot.engine.card_kinds import NodeKind
from aliquot.engine.workload import WHOLE, Workload
from aliquot.model import is_model

_UNSEEN = 1.0
"""How many pods that fill a whole node count as seen before any was: somebody will ask for the largest nodes."""
_ALMOST = 0.9
"""The share of a node's CPU and memory that such a pod asks for: other pods run on every node."""
_MOST_LARGE, _MOST_PARTICULAR = 64, 64
"""Shapes of large pods that count, and lists of models; the most common ones, because what a decision costs grows with
their number."""
_CHANCES, _PRESSURES = 8, 8
"""Chances and pressures are rounded to so many parts of one: what follows from them can be kept until they change."""
_CONTESTED = 0.4
"""What a card of a model costs that only pods who insist on it should get."""
_MOST_PRESSURE = 1.5


@dataclass(frozen=True)
class Large:
    """Pods that need `cards` whole cards of one node; `count` of them were seen."""

    cards: int
    cpu: int
    memory: int
    models: tuple[str, ...]
    count: float

    def covers(self, other: "Large") -> bool:
        """Whether such a pod takes a room that the other could use."""
        narrower = not other.models or (bool(self.models) and set(self.models) <= set(other.models))
        return self.cards >= other.cards and self.cpu >= other.cpu and self.memory >= other.memory and narrower


class Demand:
    """What a workload says about large and particular pods, for the kinds of nodes that there are."""

    def __init__(self, workload: Workload, kinds: Sequence[NodeKind]) -> None:
        asking = [shape for shape in workload.shapes if shape.cards]
        pods = {shape: shape.weight * workload.pods_per_weight for shape in asking}
        self._total = max(1.0, fsum(pods.values()))
        asked = {shape: pods[shape] * shape.cards * shape.share / WHOLE for shape in asking}
        self._mean = max(fsum(asked.values()) / self._total, 1e-9)
        large = [shape for shape in asking if shape.cards > 1 and shape.share == WHOLE]
        self.large = [
            Large(shape.cards, shape.cpu, shape.memory, shape.models, pods[shape])
            for shape in sorted(large, key=lambda shape: -shape.weight)[:_MOST_LARGE]
        ]
        fills = (
            Large(kind.cards, int(kind.host.cpu * _ALMOST), int(kind.host.memory * _ALMOST), (kind.model,), _UNSEEN)
            for kind in kinds
            if kind.cards > 1
        )
        self.large += dict.fromkeys(fills)
        particular: dict[tuple[str, ...], float] = {}
        for shape in asking:
            if shape.models:
                particular[shape.models] = particular.get(shape.models, 0.0) + asked[shape] / self._total
        self._particular = sorted(particular.items(), key=lambda item: -item[1])[:_MOST_PARTICULAR]
        self._suiting: dict[str, list[bool]] = {}

    @cached_property
    def cards(self) -> Ints:
        return np.array([each.cards for each in self.large], np.int64)

    @cached_property
    def cpu(self) -> Ints:
        return np.array([each.cpu for each in self.large], np.int64)

    @cached_property
    def memory(self) -> Ints:
        return np.array([each.memory for each in self.large], np.int64)

    @cached_property
    def _least_cpu(self) -> Ints:
        return np.maximum(self.cpu, 1)[:, np.newaxis]

    @cached_property
    def _least_memory(self) -> Ints:
        return np.maximum(self.memory, 1)[:, np.newaxis]

    @cached_property
    def _frequency(self) -> Floats:
        """How many rooms of each kind the pods seen would take, of all pods, with some doubt."""
        seen = [
            sum(other.count * (other.cards // each.cards) for other in self.large if other.covers(each))
            for each in self.large
        ]
        return np.array([count + sqrt(count + 1) for count in seen], np.float64) / self._total

    def suits(self, kinds: Sequence[NodeKind]) -> Ints:
        """[large, kinds]: 1 where a kind of node has a model that the pods accept."""
        accepted = [[not each.models or _is_one_of(kind.model, each.models) for kind in kinds] for each in self.large]
        return np.array(accepted, np.int64).reshape(len(self.large), len(kinds))

    def rooms(self, whole: Ints, cpu: Ints, memory: Ints) -> Ints:
        """[large, n], or [large, m, n]: how many of each kind of large pods fit on n nodes with so much CPU and memory
        and [n] or [m, n] whole cards left, whatever their model."""
        by_host = np.maximum(np.minimum(cpu // self._least_cpu, memory // self._least_memory), 0)
        if whole.ndim == 1:
            return np.asarray(np.minimum(by_host, whole // self.cards[:, np.newaxis]))
        return np.asarray(np.minimum(by_host[:, np.newaxis], whole // self.cards[:, np.newaxis, np.newaxis]))

    def covered(self, cards: int, cpu: int, memory: int) -> Ints:
        """[large]: how many rooms of each kind such a pod fills itself."""
        fills = (self.cards <= cards) & (self.cpu <= cpu) & (self.memory <= memory)
        return np.asarray(np.where(fills, cards // self.cards, 0) if cards > 1 else np.zeros_like(self.cards))

    def prices(self, rooms: Ints, idle: float) -> Floats:
        """[large]: the cards that a lost room costs: as many as it needs, by the chance that there will be more such
        pods than rooms, until the cluster is full."""
        expected = idle / self._mean * self._frequency
        away = (expected - rooms + 0.5) / np.sqrt(np.maximum(expected, 0.25))
        return np.asarray(self.cards * np.round(_normal(away) * _CHANCES) / _CHANCES)

    def pressure(self, models: Sequence[str], idle: Floats) -> Floats:
        """[models]: what a card of each model costs, by the part of the idle ones that pods who insist on it will ask
        for. `idle` has the idle cards of each model."""
        pressure = np.zeros(len(models))
        to_come = fsum(idle) / self._mean  # whatever the order of models
        suiting = np.array([self._suits_particular(model) for model in models], np.bool_)
        suiting = suiting.reshape(len(models), len(self._particular))
        for (_, asked), suits in zip(self._particular, suiting.T, strict=True):
            left = fsum(idle[suits])
            if left > 0:
                pressure += suits * (to_come * asked / left)
        return np.minimum(np.round(pressure * _PRESSURES) / _PRESSURES, _MOST_PRESSURE) * _CONTESTED

    def _suits_particular(self, model: str) -> list[bool]:
        """For each list of models, whether the model is one of them."""
        if model not in self._suiting:
            self._suiting[model] = [_is_one_of(model, wanted) for wanted, _ in self._particular]
        return self._suiting[model]

    @property
    def is_particular(self) -> bool:
        return bool(self._particular)


def _is_one_of(model: str, names: Sequence[str]) -> bool:
    return any(is_model(name, model) for name in names)


def _normal(away: Floats) -> Floats:
    """The normal distribution function, right to a thousandth."""
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(1.5976 * away + 0.07056 * away**3, -50.0, 50.0))))
