"""The arithmetic of a rollout: how many pods the newest template and the older ones should have next."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from aliquot.apiserver.objects import Object, dig


@dataclass(frozen=True, slots=True)
class SetSize:
    """The replicas of a ReplicaSet, and how many of them are available."""

    replicas: int
    available: int


@dataclass(frozen=True, slots=True)
class RolloutBounds:
    wanted: int
    most: int
    """The number of pods of all templates."""
    fewest_available: int


def bounds_of(deployment: Object) -> RolloutBounds:
    wanted = deployment["spec"]["replicas"]
    rolling = dig(deployment, "spec", "strategy", "rollingUpdate") or {}
    surge = ceil(_amount(rolling.get("maxSurge", 0), wanted))
    missing = floor(_amount(rolling.get("maxUnavailable", 0), wanted))
    if not surge and not missing:
        missing = 1
    return RolloutBounds(wanted, wanted + surge, max(0, wanted - missing))


def _amount(value: object, of: int) -> Fraction:
    """A number, or a percentage such as `25%`; anything else is 0."""
    if isinstance(value, int):
        return Fraction(value)
    digits = str(value).removesuffix("%")
    return Fraction(int(digits) * of, 100) if digits.isdigit() else Fraction(0)


def next_sizes(bounds: RolloutBounds, newest: SetSize, older: Sequence[SetSize]) -> tuple[int, list[int]]:
    """The next sizes of the newest set and of the older ones, oldest first."""
    if not any(old.replicas for old in older):
        return bounds.wanted, [0 for _ in older]
    total = newest.replicas + sum(old.replicas for old in older)
    room = max(0, bounds.most - total)
    grown = min(bounds.wanted, newest.replicas + room)
    return grown, _shrunk(bounds, SetSize(grown, newest.available), older)


def _shrunk(bounds: RolloutBounds, newest: SetSize, older: Sequence[SetSize]) -> list[int]:
    """Shrink the older sets: first unavailable pods, then as many as may be unavailable."""
    sizes = [old.replicas for old in older]
    unready = newest.replicas - min(newest.replicas, newest.available)
    removable = newest.replicas + sum(sizes) - bounds.fewest_available - unready
    spare = newest.available + sum(min(old.replicas, old.available) for old in older) - bounds.fewest_available
    for position, old in enumerate(older):
        useless = max(0, min(old.replicas - old.available, removable))
        sizes[position] -= useless
        removable -= useless
    for position in range(len(sizes)):
        taken = max(0, min(sizes[position], spare, removable))
        sizes[position] -= taken
        spare -= taken
        removable -= taken
    return sizes
