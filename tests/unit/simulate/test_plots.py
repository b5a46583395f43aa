"""Plots, and the curves in them."""

from pathlib import Path

import pytest
from matplotlib.colors import to_rgba

from aliquot.errors import BadInput
from aliquot.simulate.orders import shuffled
from aliquot.simulate.plots import check_plots, curve, picture
from aliquot.simulate.policy_names import parsed_policy
from aliquot.simulate.results import RunResult
from aliquot.simulate.run import run
from aliquot.simulate.scenario import Arrival, Order, World
from tests.unit.simulate.worlds import node, pod

WORLD = World(
    [node(f"n{number}", 8) for number in range(4)],
    [*(pod(f"large{number}", 8) for number in range(2)), *(pod(f"small{number}", milli=300) for number in range(20))],
)


def runs(policy: str = "binpack") -> list[RunResult]:
    return [run(WORLD, shuffled(WORLD, seed, 80 + 20 * seed), parsed_policy(policy)) for seed in range(1, 4)]


def test_the_mean_of_several_orders_never_falls_while_no_pod_leaves() -> None:
    values = curve(runs(), lambda _, point: point.allocation)
    assert {len(own) for own in values.values()} == {3}, "every order counts at every percentage"
    means = [sum(own) for own in values.values()]
    assert means == sorted(means)
    assert list(values) == sorted(values)


def test_a_run_whose_first_pod_is_larger_begins_with_that_pod() -> None:
    large = run(WORLD, Order("large", [Arrival(0, 0)]), parsed_policy("binpack"))
    small = run(WORLD, Order("small", [Arrival(2, 0)]), parsed_policy("binpack"))
    assert curve([large, small], lambda _, point: point.arrived) == {1: [25, 1], 25: [25, 1]}


def test_a_policy_has_the_same_colour_in_curves_and_bars() -> None:
    axes = picture([*runs("binpack"), *runs("spread")]).axes
    lines = [line.get_color() for line in axes[0].lines]
    assert len(set(lines)) == 2
    assert [bar.get_facecolor() for bar in axes[4].patches] == [to_rgba(colour) for colour in lines]


@pytest.mark.parametrize(
    ("name", "words"),
    [("none/a.png", "there is no folder"), ("folder.png", "it is a folder"), ("a.pdf", "does not end in .png or .svg")],
)
def test_a_plot_that_could_not_be_written_is_refused_before_the_runs(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(BadInput, match=words):
        check_plots([tmp_path / name])
