"""The workload that a cluster expects: the shapes of pods and how common each is. The fragmentation policy keeps room
for them."""

from dataclasses import dataclass

from aliquot.errors import BadConfig

WHOLE = 1000
"""A card in thousandths."""


@dataclass(frozen=True, slots=True)
class Shape:
    """`share` thousandths of each of `cards` cards, asked by `weight` pods out of all. No cards: a pod without GPU.

    `models` are names as users write them; none means any.
    """

    cards: int
    share: int
    weight: int
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.cards < 0 or self.weight < 1 or not 0 < self.share <= WHOLE:
            raise BadConfig(f"workload: {self} needs cards >= 0, weight >= 1 and a share of 1 to {WHOLE}")


@dataclass(frozen=True, slots=True)
class Workload:
    shapes: tuple[Shape, ...]

    def __post_init__(self) -> None:
        if not self.shapes:
            raise BadConfig("workload: at least one shape is needed")

    @property
    def weight(self) -> int:
        return sum(shape.weight for shape in self.shapes)


COMMON = Workload(
    (
        Shape(1, 1000, 3911),
        Shape(1, 810, 1078),
        Shape(1, 470, 878),
        Shape(1, 320, 375),
        Shape(1, 650, 253),
        Shape(1, 230, 202),
        Shape(1, 590, 147),
        Shape(1, 160, 98),
        Shape(8, 1000, 44),
        Shape(2, 1000, 16),
        Shape(4, 1000, 15),
    )
)
"""Used where a cluster names none, from the default list of the public openb trace: of its 8,152 pods 7,064 ask for
GPUs. The five sizes that are near a more common one are counted with it (460 as 470, 370 as 320, 220 as 230, 550 as
590, 110 as 160 thousandths); the 47 pods with yet other sizes are left out."""
