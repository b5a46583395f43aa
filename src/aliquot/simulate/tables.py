"""Results as tables for people."""

from collections.abc import Callable, Sequence

from rich import box
from rich.table import Table

from aliquot.simulate.results import RunResult, by_policy, spread

_MARK = 100
"""The percentage of arrived cards at which allocations are compared, besides the end."""


def summary(runs: Sequence[RunResult]) -> Table:
    """A row per policy: means over the orders, and their spread if there are several."""
    marks = _marks(runs)
    table = _table("policy", *(f"allocated at {mark} %" for mark in marks), "fragments", "stranded", "no CPU")
    for column in ("failed pods", "several cards", "s/run"):
        table.add_column(column, justify="right")
    for policy, own in by_policy(runs).items():
        table.add_row(
            policy,
            *(_shown(own, _allocation_at(mark)) for mark in marks),
            _shown(own, lambda each: 100 * each.last.fragments / each.cards),
            _shown(own, lambda each: each.last.stranded, 1),
            _shown(own, lambda each: each.last.starved, 1),
            _shown(own, lambda each: float(len(each.failed)), 1),
            _shown(own, lambda each: float(each.failed_multi), 1),
            _shown(own, lambda each: each.seconds, 1),
        )
    table.caption = (
        "allocated and fragments: percent of all cards; stranded: cards' worth of idle GPU that no expected pod can "
        "use, and of it for lack of the node's CPU or memory"
    )
    return table


def per_model(runs: Sequence[RunResult]) -> Table:
    """A row per model and policy, at the end of the runs."""
    table = _table("model", "policy", "cards", "allocated %", "stranded")
    groups = by_policy(runs)
    for model in dict.fromkeys(each.model for run in runs for each in run.models):
        for policy, own in groups.items():
            here = [each for run in own for each in run.models if each.model == model]
            cards = sum(each.cards for each in here)
            table.add_row(
                model or "unknown",
                policy,
                f"{cards / len(here):.0f}",
                f"{100 * sum(each.allocated for each in here) / cards:.2f}",
                f"{sum(each.stranded for each in here) / len(here):.1f}",
            )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left")
    return table


def _marks(runs: Sequence[RunResult]) -> list[int]:
    """100 %, if every run reached it, and the last percentage that all reached."""
    common = set.intersection(*({point.arrived for point in each.points} for each in runs))
    return sorted({max(common), *({_MARK} & common)}) if common else []


def _allocation_at(percent: int) -> Callable[[RunResult], float]:
    """Of runs that reached it."""

    def allocation(each: RunResult) -> float:
        return next(point.allocation for point in each.points if point.arrived == percent)

    return allocation


def _shown(runs: Sequence[RunResult], value: Callable[[RunResult], float], digits: int = 2) -> str:
    own = spread(runs, value)
    return f"{own.mean:.{digits}f}" + (f" ±{own.deviation:.{digits}f}" if len(runs) > 1 else "")
