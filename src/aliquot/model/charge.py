"""What somebody takes from one card, in every measure in which a card is sold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Life(Enum):
    """When a container runs, which decides how its part counts."""

    MAIN = "main"
    SIDECAR = "sidecar"
    INIT = "init"


@dataclass(frozen=True, slots=True)
class Charge:
    """`slots` counts MPS parts, `shares` all others: a card never has both."""

    cores: int = 0
    mib: int = 0
    slots: int = 0
    shares: int = 0

    def __add__(self, other: "Charge") -> "Charge":
        return Charge(
            self.cores + other.cores, self.mib + other.mib, self.slots + other.slots, self.shares + other.shares
        )

    def __sub__(self, other: "Charge") -> "Charge":
        return Charge(
            self.cores - other.cores, self.mib - other.mib, self.slots - other.slots, self.shares - other.shares
        )


def peak(parts: Iterable[tuple[Life, int]]) -> int:
    """The most that containers hold at any time: init containers one after another, the rest together.

    A sidecar runs beside every init container that starts after it, as Kubernetes counts it.
    """
    main = sidecars = highest_init = 0
    for life, size in parts:
        if life is Life.SIDECAR:
            sidecars += size
        elif life is Life.INIT:
            highest_init = max(highest_init, sidecars + size)
        else:
            main += size
    return max(main + sidecars, highest_init)


def peak_charge(parts: Sequence[tuple[Life, Charge]]) -> Charge:
    """The same for every measure of a card."""
    return Charge(
        peak((life, part.cores) for life, part in parts),
        peak((life, part.mib) for life, part in parts),
        peak((life, part.slots) for life, part in parts),
        peak((life, part.shares) for life, part in parts),
    )
