"""How the parts of a pod's containers add up."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.errors import BadDemand
from aliquot.model import Charge, Life, Memory, Part, Placement, Slice, Unit, charges, peak
from tests.factories import make_cards, make_gpu, make_placement, make_request

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


@pytest.mark.parametrize(
    ("memory", "mib"),
    [
        pytest.param(Memory(3, Unit.MIB), 3, id="MiB"),
        pytest.param(Memory(3, Unit.NODE), 3072, id="node units"),
        pytest.param(Memory(50, Unit.PERCENT), 8137, id="percent, rounded down so that two halves fit"),
        pytest.param(Memory(2, Unit.SLOT), 3255, id="MPS slots"),
    ],
)
def test_memory_is_turned_into_mib_by_node_and_card(memory: Memory, mib: int) -> None:
    assert memory.mib(make_gpu(mib=16275, slots=10), unit_mib=1024) == mib


def test_a_slot_of_a_card_that_is_not_cut_into_slots_is_more_than_the_card_has() -> None:
    assert Memory(1, Unit.SLOT).mib(make_gpu(mib=1000, slots=0), unit_mib=1) > 1000


PARTS: list[Any] = [
    pytest.param(Part(whole=True), Charge(100, 15360, shares=1), id="a whole card"),
    pytest.param(Part(cores=30, memory=Memory(1000)), Charge(30, 1000, shares=1), id="cores and memory"),
    pytest.param(Part(cores=30, cores_limit=80), Charge(30, 0, shares=1), id="a burst limit is not paid for"),
    pytest.param(Part(slots=2, memory=Memory(2, Unit.SLOT)), Charge(20, 3072, slots=2), id="MPS slots"),
    pytest.param(Part(slots=1, memory=Memory(500)), Charge(10, 500, slots=1), id="a slot with memory of its own"),
    pytest.param(Part(slots=1, cores=60), Charge(60, 0, slots=1), id="a slot with cores of its own"),
]


@pytest.mark.parametrize(("part", "charge"), PARTS)
def test_a_part_costs_each_card(part: Part, charge: Charge) -> None:
    assert part.on(make_gpu(mib=15360, slots=10), unit_mib=1024) == charge


@pytest.mark.parametrize(
    "part",
    [
        pytest.param({"cards": 0}, id="no card"),
        pytest.param({"cores": -1}, id="cores"),
        pytest.param({"memory": Memory(-1)}, id="memory"),
        pytest.param({"slots": -1}, id="slots"),
    ],
)
def test_no_part_is_of_no_card_or_less_than_nothing(part: dict[str, Any]) -> None:
    with pytest.raises(BadDemand, match="at least one card and no negative amounts"):
        Part(**part)


CHARGED: list[Any] = [
    pytest.param({"c0": 3, "c1": 4}, [M, M], {"GPU-n1-0": Charge(0, 7, shares=2)}, id="main containers on one card"),
    pytest.param({"c0": 9, "c1": 4}, [I, M], {"GPU-n1-0": Charge(0, 9, shares=1)}, id="an init container"),
    pytest.param({"c1": 4}, [I, M], {"GPU-n1-0": Charge(0, 4, shares=1)}, id="a container without a part"),
]


@pytest.mark.parametrize(("parts", "lives", "expected"), CHARGED)
def test_a_placement_is_charged_by_the_lives_of_its_containers(
    parts: dict[str, int], lives: list[Life], expected: dict[str, Charge]
) -> None:
    assert charges(make_placement(make_cards(), **parts), make_request(1, 1, lives=lives)) == expected


def test_containers_on_several_cards_are_charged_to_each() -> None:
    first, second = (Slice(uuid, 0, 0, 10, 100) for uuid in ("a", "b"))
    placement = Placement("n1", "gpushare", {"c0": (first, second), "c1": (first,)})
    assert charges(placement, make_request(1, 1)) == {"a": Charge(20, 200, shares=2), "b": Charge(10, 100, shares=1)}


def test_a_container_that_the_request_does_not_know_runs_all_the_time() -> None:
    placement = make_placement(make_cards(), stranger=5, c0=9)
    assert charges(placement, make_request(9, lives=[I])) == {"GPU-n1-0": Charge(0, 9, shares=1)}
    assert charges(placement, make_request(9, lives=[S])) == {"GPU-n1-0": Charge(0, 14, shares=2)}
