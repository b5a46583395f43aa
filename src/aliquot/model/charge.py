"""What a pod takes from one card, in every measure in which a card is sold."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from operator import add, sub
from typing import Any, NamedTuple


class Life(Enum):
    """When a container runs, which decides how its part counts."""

    MAIN = "main"
    SIDECAR = "sidecar"
    INIT = "init"


class Charge(NamedTuple):
    """`slots` counts MPS parts and `shares` counts all other parts: a card never has both.

    A tuple, because the ledger adds and compares thousands of them. Everything below holds for every measure.
    """

    cores: int = 0
    mib: int = 0
    slots: int = 0
    shares: int = 0

    def __add__(self, other: "Charge") -> "Charge":  # type: ignore[override]
        return Charge(*map(add, self, other))

    def __sub__(self, other: "Charge") -> "Charge":
        return Charge(*map(sub, self, other))

    def at_least(self, other: "Charge") -> "Charge":
        """The larger of the two, measure by measure."""
        return Charge(*map(max, self, other))

    def at_most(self, other: "Charge") -> "Charge":
        """The smaller of the two, measure by measure."""
        return Charge(*map(min, self, other))


def peak(parts: Iterable[tuple[Life, int]]) -> int:
    """The most that containers hold at any time."""
    return int(peak_by(max, parts))


def peak_by(larger: Callable[[Any, Any], Any], parts: Iterable[tuple[Life, Any]]) -> Any:
    """The peak rule itself, for numbers and for arrays: `larger` is `max` or `np.maximum`.

    Init containers run one after another, all others run together. As in Kubernetes, a sidecar runs alongside every
    init container that starts after it.
    """
    main = sidecars = init = 0
    for life, size in parts:
        if life is Life.SIDECAR:
            sidecars = sidecars + size
        elif life is Life.INIT:
            init = larger(init, sidecars + size)
        else:
            main = main + size
    return larger(main + sidecars, init)


def peak_charge(parts: Sequence[tuple[Life, Charge]]) -> Charge:
    """The peak in every measure."""
    if len(parts) == 1:
        return parts[0][1]
    lives = [life for life, _ in parts]
    measures = zip(*(charge for _, charge in parts), strict=True)
    return Charge(*(peak(zip(lives, sizes, strict=True)) for sizes in measures))
