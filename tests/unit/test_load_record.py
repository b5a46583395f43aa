"""A node's load in its Lease: what is written is read back, bounded, and nothing else is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.errors import BadRecord
from aliquot.model.bounds import LARGEST_RECORD, MAX_MEASURED_PODS
from aliquot.model.load import CardLoad, NodeLoad, PodLoad, read_load, write_load

shares = st.none() | st.integers(0, 1000).map(lambda permille: permille / 1000)
sizes = st.integers(0, 2**50)
names = st.text(st.characters(codec="utf-8"), max_size=20)
cards = st.builds(CardLoad, shares, st.none() | sizes, st.none() | st.integers(0, 1000).map(float))
uses = st.builds(PodLoad, sizes, shares, st.booleans())
loads = st.builds(
    NodeLoad,
    st.integers(0, 2**32).map(float),
    st.dictionaries(names, cards, max_size=4),
    st.dictionaries(names, st.dictionaries(names, uses, max_size=3), max_size=4),
)


@given(loads)
def test_a_load_is_read_as_it_was_written(load: NodeLoad) -> None:
    assert read_load(write_load(load)) == load


def test_a_load_is_written_as_the_wire_has_it() -> None:
    load = NodeLoad(
        1_700_000_000.1234,
        {"GPU-0": CardLoad(0.42, 2**30, 70.5), "GPU-1": CardLoad()},
        {"uid-1": {"GPU-0": PodLoad(2**29, 0.21, estimated=True)}},
    )
    assert write_load(load) == (
        '{"v":1,"at":1700000000.123,"cards":{"GPU-0":[0.42,1073741824,70.5],"GPU-1":[null,null,null]},'
        '"pods":{"uid-1":{"GPU-0":[536870912,0.21,true]}}}'
    )


def test_pods_that_use_the_least_are_left_out_first() -> None:
    pods = {f"uid-{n}": {"GPU-0": PodLoad(n)} for n in range(2 * MAX_MEASURED_PODS)}
    kept = read_load(write_load(NodeLoad(0.0, pods=pods))).pods
    assert set(kept) == {f"uid-{n}" for n in range(MAX_MEASURED_PODS, 2 * MAX_MEASURED_PODS)}


def test_a_record_never_exceeds_its_bound() -> None:
    pods = {f"uid-{n}": {f"{m}-{'x' * 100}": PodLoad(n) for m in range(8)} for n in range(MAX_MEASURED_PODS)}
    text = write_load(NodeLoad(0.0, pods=pods))
    assert len(text) <= LARGEST_RECORD
    assert read_load(text).pods


@pytest.mark.parametrize(
    "record",
    [
        pytest.param({"v": 2, "at": 0}, id="another version"),
        pytest.param({"v": 1}, id="no time"),
        pytest.param({"v": 1, "at": 0, "cards": {"GPU-0": [1.5]}}, id="busier than a card can be"),
        pytest.param({"v": 1, "at": 0, "cards": {"GPU-0": [0.5, -1]}}, id="negative memory"),
        pytest.param({"v": 1, "at": 0, "cards": {str(n): [] for n in range(129)}}, id="a card too many"),
    ],
)
def test_another_record_is_refused(record: object) -> None:
    with pytest.raises(BadRecord, match=r"aliquot\.io/load"):
        read_load(json.dumps(record))
