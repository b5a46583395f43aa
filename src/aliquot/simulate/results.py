"""What a run found, and the mean and spread of several."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev


@dataclass(frozen=True)
class Measures:
    """Of the whole cluster, in cards: see `gauges.Gauge`."""

    idle: float
    fragments: float
    stranded: float
    starved: float


@dataclass(frozen=True)
class Point:
    """At this percentage of arrived cards: the allocation in percent, and the measures."""

    arrived: int
    allocation: float
    measures: Measures


@dataclass(frozen=True)
class ModelResult:
    """At the end, in cards."""

    model: str
    cards: int
    allocated: float
    stranded: float


@dataclass(frozen=True)
class RunResult:
    """One policy and one order. `arrived`, `placed` and `allocated` are in cards. `failed` are the numbers of the
    arrivals that found no node, `failed_gpu` counts those with GPU, `failed_multi` those with several cards."""

    policy: str
    order: str
    cards: int
    arrivals: int
    arrived: float
    placed: float
    allocated: float
    failed: tuple[int, ...]
    failed_gpu: int
    failed_multi: int
    points: tuple[Point, ...]
    last: Measures
    models: tuple[ModelResult, ...]
    seconds: float

    def at(self, percent: int) -> Point | None:
        return next((point for point in self.points if point.arrived == percent), None)


@dataclass(frozen=True)
class Spread:
    """The mean of several runs, and their standard deviation."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(mean(values), stdev(values) if len(values) > 1 else 0.0)


def spread(runs: Sequence[RunResult], value: Callable[[RunResult], float]) -> Spread:
    return Spread.of([value(each) for each in runs])


def by_policy(runs: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """In the order in which policies were asked for."""
    grouped: dict[str, list[RunResult]] = {}
    for each in runs:
        grouped.setdefault(each.policy, []).append(each)
    return grouped
