"""Results as tables for people."""

from collections.abc import Callable, Sequence

from rich import box
from rich.table import Table

from aliquot.simulate.results import RunResult, by_label, spread
from aliquot.simulate.returnable import Returnable

_MARK = 100
"""The percentage of arrived cards at which allocations are compared, besides the end."""
_FEW = 5


_AT = "at N %      cards that are allocated, in percent of all, when pods have asked for N % of them\n"
_SETTLED = """\
settled     cards that are allocated, in percent of all: the mean over the second half of the arrivals
placed      percent of the cards asked for that pods got
"""
_LEGEND = """\
cards       cards that are allocated at the end
fragments   percent of all cards that are idle and of no use to an average expected pod (FGD's measure)
stranded    cards' worth of idle GPU that no expected pod can use; no CPU/mem: of it, for lack of CPU or memory
failed      pods that found no node; several: of these, pods that asked for several cards"""


def legend(runs: Sequence[RunResult]) -> str:
    """What the columns of the summary mean."""
    return (_SETTLED if _depart(runs) else _AT) + _LEGEND


def summary(runs: Sequence[RunResult]) -> Table:
    """A row per policy: means over the orders, and their standard deviation if there are several."""
    shares = _settled() if _depart(runs) else _marks(runs)
    table = _table("policy", *shares, "cards", "fragments", "stranded", "no CPU/mem", "failed", "several")
    for label, own in by_label(runs).items():
        table.add_row(
            label,
            *(_shown(own, value) for value in shares.values()),
            _shown(own, lambda each: each.allocated, 1),
            _shown(own, lambda each: 100 * each.last.fragments / each.cards),
            _shown(own, lambda each: each.last.stranded, 1),
            _shown(own, lambda each: each.last.starved, 1),
            _shown(own, lambda each: len(each.failed), 1),
            _shown(own, lambda each: each.failed_multi, 1),
        )
    return table


def per_model(runs: Sequence[RunResult]) -> Table:
    """A row per model and policy, at the end of the runs."""
    table = _table("model", "policy", "cards", "allocated %", "stranded")
    groups = by_label(runs)
    for model in sorted({each.model for run in runs for each in run.models}):
        for label, own in groups.items():
            here = [each for run in own for each in run.models if each.model == model]
            cards = sum(each.cards for each in here)
            if cards:
                table.add_row(
                    model or "unknown",
                    label,
                    f"{cards / len(here):.0f}",
                    f"{100 * sum(each.allocated for each in here) / cards:.2f}",
                    f"{sum(each.stranded for each in here) / len(here):.1f}",
                )
    return table


def returning(found: Sequence[Returnable]) -> Table:
    """What could be returned. Rows do not add up: each is by itself."""
    table = _table("policy", "model", "nodes that could go", "of", "cards", "such as")
    for each in found:
        names = ", ".join(each.nodes[:_FEW]) + (", ..." if len(each.nodes) > _FEW else "")
        table.add_row(each.policy, each.model or "any", str(len(each.nodes)), str(each.of), str(each.cards), names)
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in ("policy", "model", "such as") else "right")
    return table


_Value = Callable[[RunResult], float]


def _depart(runs: Sequence[RunResult]) -> bool:
    return any(each.left for each in runs)


def _marks(runs: Sequence[RunResult]) -> dict[str, _Value]:
    """The allocation at 100 % of arrived cards, if every run went beyond it, and at the end."""
    ends = {each.points[-1].arrived for each in runs}
    last = f"at {max(ends)} %" if len(ends) == 1 else "at the end"
    first = {f"at {_MARK} %": _allocation_at(_MARK)} if min(ends) > _MARK else {}
    return {**first, last: _allocation_at(max(ends))}


def _allocation_at(percent: int) -> _Value:
    return lambda each: each.at(percent).allocation


def _settled() -> dict[str, _Value]:
    """For pods that leave again."""
    return {"settled": lambda each: each.settled, "placed": lambda each: 100 * each.placed / max(each.arrived, 1e-9)}


def _shown(runs: Sequence[RunResult], value: _Value, digits: int = 2) -> str:
    own = spread(runs, value)
    return f"{own.mean:.{digits}f}" + (f" ±{own.deviation:.{digits}f}" if len(runs) > 1 else "")
