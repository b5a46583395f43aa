"""What the exporters have in common: their units, and what a container or pod uses in all."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

from aliquot.agent.prometheus import Metric
from aliquot.agent.usage import ContainerUse

MIB, MHZ = 2**20, 1e6
_K = TypeVar("_K", bound=Hashable)


def gauge(name: str, text: str) -> Metric:
    return Metric(name, "gauge", text)


def percent(ratio: float | None) -> float | None:
    return None if ratio is None else round(100 * ratio, 3)


def mib(bytes_: int | None) -> float | None:
    return None if bytes_ is None else round(bytes_ / MIB, 3)


def grouped(uses: Iterable[ContainerUse], key: Callable[[ContainerUse], _K]) -> Mapping[_K, list[ContainerUse]]:
    groups: dict[_K, list[ContainerUse]] = {}
    for use in uses:
        groups.setdefault(key(use), []).append(use)
    return groups


def cores_percent(uses: Iterable[ContainerUse]) -> float | None:
    """Of all cards together; None if any of it is unknown."""
    known = [use.share.cores for use in uses]
    return None if None in known else percent(sum(cores or 0.0 for cores in known))


def memory_mib(uses: Iterable[ContainerUse]) -> float:
    return round(sum(use.share.memory_bytes for use in uses) / MIB, 3)


def given_cores(uses: Iterable[ContainerUse]) -> int:
    """Percent."""
    return sum(use.part.cores for use in uses if use.part)


def given_mib(uses: Iterable[ContainerUse]) -> int:
    return sum(use.part.mib for use in uses if use.part)


def part_of(value: float | None, whole: float) -> float | None:
    """Percent; None if there is no whole."""
    return None if value is None or not whole else round(100 * value / whole, 3)
