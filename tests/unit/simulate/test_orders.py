"""Who comes when."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.errors import BadInput
from aliquot.simulate.orders import by_time, first_part, leaving, parsed_seeds, shuffled
from aliquot.simulate.scenario import Order, Scene, World
from tests.unit.simulate.worlds import node, one_by_one, pod

WORLD = World([node("a", 4), node("b", 4)], [pod("x"), pod("y", milli=500), pod("web", 0)])


@given(st.integers(0, 1000), st.integers(1, 300))
def test_a_shuffled_order_has_every_pod_first_and_ends_at_what_is_asked(seed: int, arrived: int) -> None:
    order = shuffled(WORLD, seed, arrived)
    sizes = {0: 1000, 1: 500, 2: 0}
    total = sum(sizes[each.pod] for each in order.arrivals)
    assert total <= 80 * arrived < total + 1000
    first = [each.pod for each in order.arrivals[:3]]
    assert len(set(first)) == len(first)
    assert sorted(order.ranks) == [0, 1]
    assert order == shuffled(WORLD, seed, arrived)


def test_seeds_give_different_orders() -> None:
    orders = [tuple(each.pod for each in shuffled(WORLD, seed, 300).arrivals) for seed in range(5)]
    assert len(set(orders)) == 5


def test_pods_without_gpu_alone_cannot_fill_a_cluster() -> None:
    with pytest.raises(BadInput, match="no pod asks for a GPU"):
        shuffled(World([node()], [pod("web", 0)]), 1, 100)


def test_pods_arrive_by_their_times() -> None:
    world = World([node()], [pod("late", arrives=5.0, leaves=9.0), pod("a"), pod("b")])
    assert [each.pod for each in by_time(world, departures=False).arrivals] == [1, 2, 0]
    assert [each.leaves for each in by_time(world, departures=True).arrivals] == [None, None, 9.0]


def test_an_order_can_end_early() -> None:
    world = World([node(cards=4)], [pod(str(number)) for number in range(4)])
    assert Counter(len(first_part(one_by_one(world), world, each).arrivals) for each in (50, 74, 75, 500)) == {
        2: 2,
        3: 1,
        4: 1,
    }


def test_pods_stay_as_long_as_the_load_says_on_average() -> None:
    order = leaving(shuffled(WORLD, 1, 10_000), WORLD, 50)
    stays = [each.leaves - each.at for each in order.arrivals if each.leaves is not None]
    assert len(stays) == len(order.arrivals) > 1000
    assert sum(stays) / len(stays) == pytest.approx(0.5 * 8000, rel=0.1)
    assert [each.at for each in order.arrivals] == sorted(each.at for each in order.arrivals)


@pytest.mark.parametrize(("text", "seeds"), [("42-44", [42, 43, 44]), ("1,2,7", [1, 2, 7]), ("3, 1-3", [3, 1, 2])])
def test_seeds_are_a_range_or_a_list(text: str, seeds: list[int]) -> None:
    assert parsed_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "x", "1-", "-3", "1..3", "9" * 5000])
def test_other_seeds_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not a list such as 42-51"):
        parsed_seeds(text)


@pytest.mark.parametrize("text", ["5-1", "1-99999999999"])
def test_no_seeds_and_very_many_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="seeds; ask for 1 to"):
        parsed_seeds(text)


def test_without_arrivals_there_is_nothing_to_simulate() -> None:
    with pytest.raises(BadInput, match="no pod arrives"):
        Scene(World([node()], [pod()]), [Order("listed", [])])
