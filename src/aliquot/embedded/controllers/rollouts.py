"""How a rollout goes on, as arithmetic: how many pods the newest template and the older ones should have now."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from aliquot.embedded.api.objects import Object, dig


@dataclass(frozen=True, slots=True)
class Set:
    """A ReplicaSet as a rollout sees it: how many pods it should have, and how many of them are available."""

    replicas: int
    available: int


@dataclass(frozen=True, slots=True)
class Bounds:
    wanted: int
    most: int
    """Pods, of all templates together."""
    fewest_available: int


def bounds_of(deployment: Object) -> Bounds:
    wanted = deployment["spec"]["replicas"]
    rolling = dig(deployment, "spec", "strategy", "rollingUpdate") or {}
    surge = ceil(_amount(rolling.get("maxSurge", 0), wanted))
    missing = floor(_amount(rolling.get("maxUnavailable", 0), wanted))
    if not surge and not missing:
        missing = 1
    return Bounds(wanted, wanted + surge, max(0, wanted - missing))


def _amount(value: object, of: int) -> Fraction:
    """A number, or a share such as `25%`; what is neither counts as nothing."""
    if isinstance(value, int):
        return Fraction(value)
    digits = str(value).removesuffix("%")
    return Fraction(int(digits) * of, 100) if digits.isdigit() else Fraction(0)


def next_sizes(bounds: Bounds, newest: Set, older: Sequence[Set]) -> tuple[int, list[int]]:
    """The next size of the newest set and of the older ones, of which the oldest comes first."""
    if not any(old.replicas for old in older):
        return bounds.wanted, [0 for _ in older]
    total = newest.replicas + sum(old.replicas for old in older)
    room = max(0, bounds.most - total)
    grown = min(bounds.wanted, newest.replicas + room)
    return grown, _shrunk(bounds, Set(grown, newest.available), older)


def _shrunk(bounds: Bounds, newest: Set, older: Sequence[Set]) -> list[int]:
    """First those of the older pods that are of no use, then as many as may be missing."""
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
