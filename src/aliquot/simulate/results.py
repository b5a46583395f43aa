"""What a run found, and the mean and spread of several."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any

import msgspec


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
    """One policy and one order. `arrived`, `placed` and `allocated` are in cards. `left` counts pods that left again.
    `failed` are the numbers of the arrivals that found no node, `failed_gpu` counts those with GPU, and `failed_multi`
    those with several cards."""

    policy: str
    order: str
    cards: int
    arrivals: int
    arrived: float
    placed: float
    allocated: float
    left: int
    failed: tuple[int, ...]
    failed_gpu: int
    failed_multi: int
    points: tuple[Point, ...]
    last: Measures
    models: tuple[ModelResult, ...]
    seconds: float
    peaks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The most that each node had taken at any time: thousandths of cards, and of cores."""
    variant: str = ""
    """What was changed for this run; empty if nothing was."""

    @property
    def label(self) -> str:
        return f"{self.policy}, {self.variant}" if self.variant else self.policy

    @property
    def settled(self) -> float:
        """The mean allocation during the second half of what arrived, in percent: what a cluster that pods enter and
        leave settles at."""
        last = self.points[-1].arrived
        return mean(point.allocation for point in self.points if 2 * point.arrived >= last)

    def at(self, percent: int) -> Point:
        """The last point up to there: a large pod may have left this very percentage out. If already the first pod went
        beyond it, the first point."""
        return ([point for point in self.points if point.arrived <= percent] or self.points[:1])[-1]


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


def by_label(runs: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """The runs of each policy and variant, in the order in which they were asked for."""
    grouped: dict[str, list[RunResult]] = {}
    for each in runs:
        grouped.setdefault(each.label, []).append(each)
    return grouped


def as_plain(run: RunResult) -> dict[str, Any]:
    """For JSON."""
    plain: dict[str, Any] = msgspec.to_builtins(run)
    del plain["peaks"]
    return {**plain, "settled": run.settled, "failed": len(run.failed), "failed_arrivals": list(run.failed)}
