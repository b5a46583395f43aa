"""Results as plots."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from aliquot.errors import BadConfig, BadInput
from aliquot.plain import why
from aliquot.simulate.results import Point, RunResult, by_label, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg")
_CURVES: Sequence[tuple[str, Callable[[RunResult, Point], float]]] = (
    ("allocated, % of cards", lambda _, point: point.allocation),
    ("fragments (FGD's measure), % of cards", lambda run, point: 100 * point.measures.fragments / run.cards),
    ("fragments, % of idle cards", lambda _, point: 100 * point.measures.fragments / max(point.measures.idle, 1e-9)),
    ("stranded: no expected pod can use them, cards", lambda _, point: point.measures.stranded),
)


def check_plots(paths: Sequence[Path]) -> None:
    """Raises BadInput for a file that nothing could be drawn to, and BadConfig without matplotlib: before the runs,
    not after."""
    for path in paths:
        if path.suffix.lower() not in FORMATS:
            raise BadInput(f"--plot: {path} does not end in {' or '.join(FORMATS)}")
    if paths:
        try:
            import matplotlib  # noqa: F401 (an extra that only plots need)
        except ImportError as error:
            raise BadConfig("plots need matplotlib; install it with: pip install 'aliquot[simulate]'") from error


def draw(runs: Sequence[RunResult], path: Path) -> None:
    """Four curves over what has arrived, with the range of all orders, and two bars."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 9), layout="constrained")
    axes = figure.subplots(2, 3).flatten()
    groups = by_label(runs)
    for axis, (title, value) in zip(axes, _CURVES, strict=False):
        _curves(axis, groups, value)
        axis.set_title(title)
        axis.set_xlabel("arrived, % of cards")
        axis.grid(alpha=0.3)
    axes[0].legend()
    _failures(axes[4], groups)
    _models(axes[5], groups)
    try:
        figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
    except OSError as error:
        raise BadInput(f"--plot: {path} cannot be written: {why(error)}") from error


def _curves(axis: "Axes", groups: dict[str, list[RunResult]], value: Callable[[RunResult, Point], float]) -> None:
    for label, runs in groups.items():
        values: dict[int, list[float]] = {}
        for run in runs:
            for point in run.points:
                values.setdefault(point.arrived, []).append(value(run, point))
        arrived = sorted(values)
        (line,) = axis.plot(arrived, [mean(values[each]) for each in arrived], label=label)
        if len(runs) > 1:
            low, high = [min(values[each]) for each in arrived], [max(values[each]) for each in arrived]
            axis.fill_between(arrived, low, high, alpha=0.2, color=line.get_color(), linewidth=0)


def _failures(axis: "Axes", groups: dict[str, list[RunResult]]) -> None:
    failed = [spread(runs, lambda run: run.failed_multi) for runs in groups.values()]
    bars = axis.bar(list(groups), [own.mean for own in failed], yerr=[own.deviation for own in failed], capsize=3)
    axis.bar_label(bars, fmt="%.1f")
    axis.set_title("failed pods that ask for several cards")
    axis.tick_params(axis="x", rotation=20)


def _models(axis: "Axes", groups: dict[str, list[RunResult]]) -> None:
    models = sorted({each.model for runs in groups.values() for run in runs for each in run.models})
    width = 0.8 / len(groups)
    for place, (label, runs) in enumerate(groups.items()):
        shares = [_allocated(runs, model) for model in models]
        axis.bar([at + place * width for at in range(len(models))], shares, width, label=label)
    axis.set_xticks([at + 0.4 - width / 2 for at in range(len(models))], [model or "unknown" for model in models])
    axis.set_ylim(max(0.0, min(_allocated(runs, model) for runs in groups.values() for model in models) - 10), 100)
    axis.set_title("allocated at the end, % of each model")
    axis.tick_params(axis="x", rotation=20)


def _allocated(runs: Sequence[RunResult], model: str) -> float:
    own = [each for run in runs for each in run.models if each.model == model]
    cards = sum(each.cards for each in own)
    return 100 * sum(each.allocated for each in own) / cards if cards else 0.0
