"""Results as plots."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from aliquot.errors import BadConfig, BadInput
from aliquot.plain import why
from aliquot.simulate.results import Point, RunResult, by_label, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
_Value = Callable[[RunResult, Point], float]
_CURVES: Sequence[tuple[str, _Value]] = (
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
        if not path.parent.is_dir():
            raise BadInput(f"--plot: {path} cannot be written: there is no folder {path.parent}")
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise BadInput(f"--plot: {path} cannot be written: it is a folder, or you lack the right")
    if paths:
        try:
            import matplotlib  # noqa: F401 (an extra that only plots need)
        except ImportError as error:
            raise BadConfig("plots need matplotlib; install it with: pip install 'aliquot[simulate]'") from error


def draw(runs: Sequence[RunResult], path: Path) -> None:
    """Raises BadInput."""
    try:
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        picture(runs).savefig(path, dpi=110, metadata=metadata)
    except OSError as error:
        raise BadInput(f"--plot: {path} cannot be written: {why(error)}") from error


def picture(runs: Sequence[RunResult]) -> "Figure":
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
    return figure


def curve(runs: Sequence[RunResult], value: _Value) -> dict[int, list[float]]:
    """The value of every run at each percentage that any of them has a point for. A run that has ended keeps its last
    point."""
    arrived = sorted({point.arrived for run in runs for point in run.points})
    return {percent: [value(run, run.at(percent)) for run in runs] for percent in arrived}


def _curves(axis: "Axes", groups: dict[str, list[RunResult]], value: _Value) -> None:
    for label, runs in groups.items():
        values = curve(runs, value)
        arrived = list(values)
        (line,) = axis.plot(arrived, [mean(values[each]) for each in arrived], label=label)
        if len(runs) > 1:
            low, high = [min(values[each]) for each in arrived], [max(values[each]) for each in arrived]
            axis.fill_between(arrived, low, high, alpha=0.2, color=line.get_color(), linewidth=0)


def _failures(axis: "Axes", groups: dict[str, list[RunResult]]) -> None:
    failed = [spread(runs, lambda run: run.failed_multi) for runs in groups.values()]
    means, deviations = [own.mean for own in failed], [own.deviation for own in failed]
    # the colours of the curves
    bars = axis.bar(
        list(groups), means, yerr=deviations, capsize=3, color=[f"C{place}" for place in range(len(groups))]
    )
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
