"""The workload that a cluster expects: shapes of pods and how common each is. Policies keep room for them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aliquot.engine.shape_counts import Shape
from aliquot.errors import BadConfig
from aliquot.model import CORES, Unit, is_model
from aliquot.model.request import NODE_UNITS

WHOLE = 1000
"""A card, in thousandths."""
_COMMON_PODS = 16
"""How many seen pods the common workload is worth."""
_ENOUGH_PODS = 64
"""With so many seen pods the common workload no longer counts."""
_FEW_MODELS = 16
"""Pods that accept more models than this hardly insist on any."""


@dataclass(frozen=True, slots=True)
class CardModel:
    model: str
    mib: int


@dataclass(frozen=True, slots=True)
class PodShape:
    """A kind of pod: it takes `share` thousandths, and at least `mib` of memory, of each of `cards` cards, and `weight`
    says how common it is. A pod without GPU has no cards.

    `models` are names as users write them; none means any. `cpu` (thousandths of a core) and `memory` (MiB) are what
    the pod requests of its node.
    """

    cards: int
    share: int
    weight: int
    models: tuple[str, ...] = ()
    cpu: int = 0
    memory: int = 0
    mib: int = 0

    def __post_init__(self) -> None:
        if self.cards < 0 or self.weight < 1 or not 0 < self.share <= WHOLE:
            raise BadConfig(f"workload: {self} needs cards >= 0, weight >= 1 and a share of 1 to {WHOLE}")
        if min(self.cpu, self.memory, self.mib) < 0:
            raise BadConfig(f"workload: {self} has a negative amount")

    def suits(self, card: CardModel) -> bool:
        return not self.models or any(is_model(name, card.model) for name in self.models)

    def share_of(self, card: CardModel) -> int:
        """The thousandths of this card that the shape takes; more than WHOLE if the card is too small."""
        return max(self.share, -(-self.mib * WHOLE // max(1, card.mib)) if self.mib else 0)


@dataclass(frozen=True, eq=False)
class Workload:
    """Compared by identity: policies keep what they derive from it."""

    shapes: tuple[PodShape, ...]
    pods: int = 0
    """How many pods it was learnt from: what their weights are worth. 0 means as many as their weights."""

    def __post_init__(self) -> None:
        if not self.shapes:
            raise BadConfig("workload: at least one shape is needed")

    @property
    def weight(self) -> int:
        return sum(shape.weight for shape in self.shapes)

    @property
    def pods_per_weight(self) -> float:
        return self.pods / self.weight if self.pods else 1.0

    @classmethod
    def learnt(cls, seen: Mapping[Shape, int]) -> "Workload":
        """The shapes of pods that were seen, and as long as they are few the common workload beside them."""
        own = cls.of(seen) if seen else COMMON
        if not seen or own.weight >= _ENOUGH_PODS:
            return own
        scale = COMMON.weight // _COMMON_PODS
        shapes = tuple(replace(shape, weight=shape.weight * scale) for shape in own.shapes)
        return cls(shapes + COMMON.shapes, pods=own.weight + _COMMON_PODS)

    @classmethod
    def of(cls, counts: Mapping[Shape, int]) -> "Workload":
        """Most common first; of equally common shapes in their order."""
        shapes = sorted(counts.items(), key=lambda item: -item[1])
        return cls(tuple(_pod_shape(shape, count) for shape, count in shapes))


def _pod_shape(shape: Shape, count: int) -> PodShape:
    amount = shape.memory.amount
    share, mib = shape.cores * (WHOLE // CORES), 0
    match shape.memory.unit:
        case Unit.MIB:
            mib = amount
        case Unit.NODE:
            mib = amount * max(NODE_UNITS)  # what most nodes have, and the node is not known here
        case Unit.PERCENT:
            share = max(share, amount * WHOLE // CORES)
        case Unit.SLOT:
            pass  # how much of a card that is depends on the card
    share = WHOLE if shape.whole else min(max(1, share), WHOLE)
    named = [constraint for constraint in shape.models if not constraint.avoid]
    models = named[0].names if len(named) == 1 and len(named[0].names) <= _FEW_MODELS else ()
    return PodShape(shape.cards, share, count, models, shape.host.cpu, shape.host.memory, mib)


COMMON = Workload(
    (
        PodShape(1, 1000, 3911),
        PodShape(1, 810, 1078),
        PodShape(1, 470, 878),
        PodShape(1, 320, 375),
        PodShape(1, 650, 253),
        PodShape(1, 230, 202),
        PodShape(1, 590, 147),
        PodShape(1, 160, 98),
        PodShape(8, 1000, 44),
        PodShape(2, 1000, 16),
        PodShape(4, 1000, 15),
    ),
    pods=_COMMON_PODS,
)
"""The default workload, from the default list of the public openb trace: 7,064 of its 8,152 pods ask for GPUs. Five
sizes count as a similar, more common size (460 as 470, 370 as 320, 220 as 230, 550 as 590, 110 as 160 thousandths). The
47 pods of other sizes are left out."""
