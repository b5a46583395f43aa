"""How the parts of a pod's containers add up."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.model import Charge, Life, Memory, Placement, Slice, Unit, charges
from aliquot.model.request import peak
from tests.factories import make_cards, make_placement, make_request

M, S, I = Life.MAIN, Life.SIDECAR, Life.INIT  # noqa: E741 - as short as the tables need


@pytest.mark.parametrize(
    ("parts", "most"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([(M, 3), (M, 4)], 7, id="main containers are added"),
        pytest.param([(I, 9), (M, 3)], 9, id="a larger init container is the peak"),
        pytest.param([(I, 2), (M, 3)], 3, id="a smaller init container does not count"),
        pytest.param([(I, 4), (I, 5), (M, 1)], 5, id="init containers run one after another"),
        pytest.param([(S, 2), (M, 3)], 5, id="a sidecar runs beside the main containers"),
        pytest.param([(S, 2), (I, 4), (M, 3)], 6, id="a sidecar runs beside the init container after it"),
        pytest.param([(I, 4), (S, 2), (M, 1)], 4, id="a sidecar does not run beside the init container before it"),
        pytest.param([(S, 1), (I, 1), (S, 1), (I, 5), (M, 1)], 7, id="sidecars pile up"),
    ],
)
def test_the_peak_is_the_most_held_at_any_time(parts: list[tuple[Life, int]], most: int) -> None:
    assert peak(parts) == most


def simulate(init: list[tuple[Life, int]], main: list[int]) -> int:
    """kubelet's start order, played through: who runs at each moment, and how much they hold together."""
    running: list[int] = []
    most = 0
    for life, size in init:
        running.append(size)
        most = max(most, sum(running))
        if life is I:
            running.remove(size)
    for size in main:
        running.append(size)
        most = max(most, sum(running))
    return most


sizes = st.integers(0, 50)


@given(st.lists(st.tuples(st.sampled_from([I, S]), sizes), max_size=6), st.lists(sizes, max_size=4))
def test_the_peak_is_what_a_play_of_kubelet_s_start_order_shows(init: list[tuple[Life, int]], main: list[int]) -> None:
    assert peak([*init, *((M, size) for size in main)]) == simulate(init, main)


def test_a_request_tells_its_peak_in_its_own_unit() -> None:
    request = make_request(4, 1, 3, lives=[I, S, M], cores=10)
    assert request.memory == Memory(4, Unit.NODE)
    assert request.cores == 20


@pytest.mark.parametrize(
    ("unit", "mib"), [pytest.param(Unit.NODE, 3072, id="node units"), pytest.param(Unit.MIB, 3, id="MiB")]
)
def test_memory_is_turned_into_mib_by_the_node(unit: Unit, mib: int) -> None:
    assert Memory(3, unit).mib(1024) == mib


CHARGED: list[Any] = [
    pytest.param({"c0": 3, "c1": 4}, [M, M], {"GPU-n1-0": Charge(0, 7)}, id="main containers on one card"),
    pytest.param({"c0": 9, "c1": 4}, [I, M], {"GPU-n1-0": Charge(0, 9)}, id="an init container"),
    pytest.param({"c1": 4}, [I, M], {"GPU-n1-0": Charge(0, 4)}, id="a container without a part"),
]


@pytest.mark.parametrize(("parts", "lives", "expected"), CHARGED)
def test_a_placement_is_charged_by_the_lives_of_its_containers(
    parts: dict[str, int], lives: list[Life], expected: dict[str, Charge]
) -> None:
    assert charges(make_placement(make_cards(), **parts), make_request(1, 1, lives=lives)) == expected


def test_containers_on_several_cards_are_charged_to_each() -> None:
    first, second = (Slice(uuid, 0, 0, 10, 100) for uuid in ("a", "b"))
    placement = Placement("n1", "gpushare", {"c0": (first, second), "c1": (first,)})
    assert charges(placement, make_request(1, 1)) == {"a": Charge(20, 200), "b": Charge(10, 100)}


def test_a_container_that_the_request_does_not_know_runs_all_the_time() -> None:
    placement = make_placement(make_cards(), stranger=5, c0=9)
    assert charges(placement, make_request(9, lives=[I])) == {"GPU-n1-0": Charge(0, 9)}
    assert charges(placement, make_request(9, lives=[S])) == {"GPU-n1-0": Charge(0, 14)}
