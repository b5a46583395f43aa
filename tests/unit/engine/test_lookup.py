"""Names are found by their bytes, exactly as a dict of strings would find them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine import NameBlock, NameTable

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
"""Any text; many of these are short, and so begin alike."""


def by_dict(known: list[str], asked: list[str]) -> list[int]:
    places = {name: place for place, name in enumerate(known) if name}
    return [places.get(name, -1) for name in asked]


@given(st.lists(NAMES, unique=True), st.lists(NAMES))
def test_every_name_is_found_where_a_dict_finds_it(known: list[str], others: list[str]) -> None:
    asked = [*known[::-1], *others, *known]
    assert NameTable(known).find(NameBlock.of(asked)).tolist() == by_dict(known, asked)


def test_a_thousand_names_that_differ_in_their_end_are_all_found() -> None:
    known = [f"gpu-node-of-a-long-name-{number:04}" for number in range(1000)]
    asked = [*known, "gpu-node-of-a-long-name-1000", "gpu-node-of-a-long-name-099", "gpu-node-of-a-long-name-09990"]
    assert NameTable(known).find(NameBlock.of(asked)).tolist() == [*range(1000), -1, -1, -1]


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        pytest.param([], ["n1"], id="nothing is known"),
        pytest.param(["n1"], [], id="nothing is asked"),
        pytest.param(["n1", ""], ["", "n1"], id="what has no name is never found"),
        pytest.param(["12345678"], ["1234567", "12345678", "123456789"], id="a name of exactly one word"),
        pytest.param(["a\0"], ["a", "a\0", "a\0\0"], id="bytes that are 0 count"),
        pytest.param(["short"], ["short" * 20], id="longer than any that is known"),
    ],
)
def test_names_at_the_edges(known: list[str], asked: list[str]) -> None:
    assert NameTable(known).find(NameBlock.of(asked)).tolist() == by_dict(known, asked)
