"""The Fleet's arrays: nodes come, change, go, and their columns are used again."""

from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine import Fleet, judge
from aliquot.model import Charge
from tests.factories import make_cards, make_request

NAMES = ("large", "other", "small", "wide", *(f"n{number}" for number in range(200)))
"""Every node that a test here may put."""


def fitting(fleet: Fleet, units: int) -> set[str]:
    judgement = judge(fleet, make_request(units), "tightest")
    return set(NAMES) - judgement.refusals(NAMES).keys()


def test_a_node_is_put_changed_and_removed() -> None:
    fleet = Fleet()
    fleet.put(make_cards(), {})
    assert fitting(fleet, 15) == {"n1"}
    fleet.put(make_cards(), {"GPU-n1-0": Charge(0, 1), "GPU-n1-1": Charge(0, 1)})
    assert fitting(fleet, 15) == set()
    fleet.remove("n1")
    assert (fitting(fleet, 1), fleet.column("n1")) == (set(), None)
    fleet.remove("n1")


def test_a_removed_node_s_column_is_used_again_and_keeps_nothing_of_it() -> None:
    fleet = Fleet()
    fleet.put(make_cards("large", mib=[81920] * 8), {})
    fleet.put(make_cards("other"), {})
    fleet.remove("large")
    fleet.put(make_cards("small", mib=(1024,)), {})
    assert (fleet.column("small"), fleet.width) == (0, 2)
    assert fitting(fleet, 2) == {"other"}


def test_a_node_that_loses_cards_does_not_sell_them() -> None:
    fleet = Fleet()
    fleet.put(make_cards(mib=(1024, 15360)), {})
    fleet.put(make_cards(mib=(1024,)), {})
    assert fitting(fleet, 2) == set()


def test_the_arrays_grow_in_both_directions_and_keep_what_they_hold() -> None:
    fleet = Fleet()
    for number in range(200):
        fleet.put(make_cards(f"n{number}", mib=[1024 * (number + 1)]), {})
    fleet.put(make_cards("wide", mib=[1024] * 16 + [512_000]), {})
    assert fitting(fleet, 200) == {"n199", "wide"}
    assert fitting(fleet, 151) == {f"n{number}" for number in range(150, 200)} | {"wide"}


def test_what_is_in_use_of_a_card_that_is_gone_is_nobody_s_concern() -> None:
    fleet = Fleet()
    fleet.put(make_cards(mib=(15360,)), {"GPU-gone": Charge(100, 15360)})
    assert fitting(fleet, 15) == {"n1"}


nodes = st.integers(0, 9)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("put"), nodes, st.lists(st.integers(0, 5), max_size=12)),
        st.tuples(st.just("remove"), nodes, st.just([])),
    ),
    max_size=30,
)


@given(changes)
def test_after_any_changes_the_fleet_sells_what_the_last_of_them_says(
    changes: list[tuple[str, int, list[int]]],
) -> None:
    fleet = Fleet()
    expected: dict[str, list[int]] = {}
    for change, number, units in changes:
        name = f"n{number}"
        if change == "put":
            fleet.put(make_cards(name, mib=[1024 * size for size in units]), {})
            expected[name] = units
        else:
            fleet.remove(name)
            expected.pop(name, None)
    assert {name for name in NAMES if fleet.column(name) is not None} == set(expected)
    for wanted in (1, 3, 5):
        assert fitting(fleet, wanted) == {name for name, units in expected.items() if max(units, default=0) >= wanted}
