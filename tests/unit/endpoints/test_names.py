"""Node names pass through an endpoint unchanged, as bytes or as strings."""

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.endpoints.names import BadName, Grouped, Names, Texts, written
from aliquot.engine import Fleet
from aliquot.model import Gpu, NodeGpus

NAME = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def fleet_of(names: list[str]) -> Fleet:
    fleet = Fleet()
    for name in names:
        fleet.put(NodeGpus(name, (Gpu(f"{name}/0", 0, 0, "A100", 1024),), 1), {})
    return fleet


def encoded(value: object) -> Any:
    return json.loads(msgspec.json.encode(value, enc_hook=written))


@given(st.lists(NAME), st.sampled_from([None, 1]), st.booleans())
def test_names_are_read_from_any_form_of_json(names: list[str], indent: int | None, escaped: bool) -> None:
    array = json.dumps(names, indent=indent).encode()
    if escaped:
        array = array.replace(b"a", b"\\u0061")
    read = Names.read(array)
    assert list(read) == names
    assert encoded(read) == names


@given(ANY_JSON)
def test_an_invalid_list_of_names_is_refused_and_never_misread(value: object) -> None:
    array = msgspec.json.encode(value)
    try:
        read = Names.read(array)
    except (msgspec.DecodeError, BadName):
        return
    assert list(read) == value


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a,b"])
def test_an_invalid_node_name_is_refused_and_named(name: str) -> None:
    with pytest.raises(BadName, match="is not a valid node name"):
        Names.read(msgspec.json.encode(["n1", name]))


@given(st.lists(st.tuples(NAME, st.booleans())))
def test_picked_names_keep_their_order(chosen: list[tuple[str, bool]]) -> None:
    picked = Names.of([name for name, _ in chosen]).picked(np.array([keep for _, keep in chosen], np.bool_))
    assert list(picked) == encoded(picked) == [name for name, keep in chosen if keep]


@given(st.lists(st.tuples(NAME, st.integers(0, 10))))
def test_every_name_gets_its_own_score(scored: list[tuple[str, int]]) -> None:
    answer = Names.of([name for name, _ in scored]).scored(np.array([score for _, score in scored], np.int64))
    assert encoded(answer) == [{"Host": name, "Score": score} for name, score in scored]


@given(st.lists(st.tuples(st.lists(NAME), st.text())))
def test_groups_are_encoded_as_one_object(groups: list[tuple[list[str], str]]) -> None:
    texts = Texts([(Names.of(names), text) for names, text in groups if names])
    expected = {name: text for names, text in groups for name in names}
    assert dict(texts) == encoded(texts) == expected


def test_counting_a_group_does_not_decode_its_names() -> None:
    assert len(Grouped([(Names.of(["a", "b"]), 1), (Names.of(["c"]), 2)])) == 3


def test_columns_are_looked_up_again_after_a_node_was_added_or_removed() -> None:
    fleet, names = fleet_of(["n1", "n2"]), Names.of(["n3", "n2", "n1"])
    assert names.columns(fleet).tolist() == [-1, 1, 0]
    fleet.remove("n1")
    assert names.columns(fleet).tolist() == [-1, 1, -1]
    fleet.put(NodeGpus("n3", (), 1), {})
    assert names.picked(np.array([True, False, True])).columns(fleet).tolist() == [0, -1]


def test_repeated_names_are_not_decoded_again() -> None:
    first = Names.of(["n1", "n2"])
    assert Names.read(b'["n1","n2"]', first) is first
    assert Names.read(b'["n2","n1"]', first) is not first
