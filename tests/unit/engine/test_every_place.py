"""A new field of a card, a new measure and a new reason each name every place that has to know of them."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.agent import handover_record
from aliquot.dialects import Holding
from aliquot.engine.all_nodes.room import Need, Room
from aliquot.engine.block import DECISIVE, Block
from aliquot.engine.fleet import Fleet
from aliquot.engine.judging import judge
from aliquot.engine.one_node.puzzle import Size
from aliquot.engine.state import NodeState
from aliquot.engine.why.alike import Shapes, label_shape
from aliquot.engine.why.findings import node_reason
from aliquot.model import (
    Charge,
    Gpu,
    Life,
    Link,
    Mode,
    NodeGpus,
    Placement,
    Reason,
    Request,
    Slice,
    Topology,
    peak,
    peak_by,
    records,
)
from aliquot.model.records import read_inventory, write_inventory
from aliquot.model.selling import conflict, is_oversold, left_of
from tests.factories import make_gpu
from tests.unit.engine.test_explain import gib, node, quota, request, wish

# -- a card's fields


class Field(NamedTuple):
    """Another value of a field, and whether it makes a difference to a request: always, or only with a topology."""

    other: Any
    judged: bool = True
    wired: bool = False


CARD_FIELDS = {
    "uuid": Field("GPU-other", judged=False),
    "index": Field(7, judged=False, wired=True),
    "minor": Field(99, judged=False),
    "model": Field("NVIDIA A100-SXM4-40GB"),
    "mib": Field(40960),
    "numa": Field(1, judged=False, wired=True),
    "healthy": Field(False),
    "cordoned": Field(True),
    "slots": Field(10),
    "mode": Field(Mode.MPS),
    "parent": Field("GPU-of-another-node", judged=False),
    "profile": Field("1g.5gb"),
    "brand": Field("BRAND_TESLA", judged=False),
    "bus_id": Field("00000000:3B:00.0", judged=False),
    "links": Field((Link("GPU-n1-1", 150),), judged=False, wired=True),
}
NODE_FIELDS = {
    "node": Field("n2", judged=False),
    "gpus": Field((), judged=False),
    "unit_mib": Field(256),
    "dialects": Field(frozenset(["hami"])),
    "model": Field("A100"),
    "pool": Field("pool"),
    "registered": Field(frozenset(["hami"]), judged=False),
    "rest_mib": Field(1024),
    "driver": Field("580.65.06", judged=False),
    "observed": Field(True),
}
"""A new field needs a line here, and with it a decision whether it is part of what makes cards or nodes alike."""


def two_cards(**changed: Any) -> NodeState:
    return NodeState(NodeGpus("n1", (replace(make_gpu(0, "n1"), **changed), make_gpu(1, "n1")), 1024), {})


def test_every_field_is_declared() -> None:
    assert list(CARD_FIELDS) == [field.name for field in fields(Gpu)]
    assert NODE_FIELDS.keys() == {field.name for field in fields(NodeGpus)}


@pytest.mark.parametrize("name", CARD_FIELDS)
def test_every_field_of_a_card_is_in_the_inventory(name: str) -> None:
    cards = two_cards(**{name: CARD_FIELDS[name].other}).cards
    assert set(read_inventory("n1", write_inventory(cards)).gpus) == set(cards.gpus)


@pytest.mark.parametrize("name", CARD_FIELDS)
def test_a_field_of_a_card_makes_nodes_differ_as_declared(name: str) -> None:
    field, before, after = CARD_FIELDS[name], two_cards(), two_cards(**{name: CARD_FIELDS[name].other})
    anyhow, connected = Shapes(request(gib(1))), Shapes(request(gib(1, cards=2), topology=Topology.NUMA))
    assert (anyhow.of(before) != anyhow.of(after)) is field.judged
    assert (connected.of(before) != connected.of(after)) is (field.judged or field.wired)


@pytest.mark.parametrize("name", CARD_FIELDS)
def test_a_field_of_a_card_makes_columns_of_the_fleet_differ_as_declared(name: str) -> None:
    field, block = CARD_FIELDS[name], Block(2)
    for at, state in (("a", two_cards()), ("b", two_cards(**{name: CARD_FIELDS[name].other}))):
        block.put(replace(state.cards, node=at), {})
    differs = any((getattr(block, array)[:, 0] != getattr(block, array)[:, 1]).any() for array in DECISIVE)
    assert differs is field.judged
    if name != "index":  # cards stand in the order of their index, which the wiring does not hold
        assert (block.wiring_id[0] != block.wiring_id[1]) is np.bool_(field.wired)


@pytest.mark.parametrize("name", NODE_FIELDS)
def test_a_field_of_a_node_makes_nodes_differ_as_declared(name: str) -> None:
    before, field = two_cards(), NODE_FIELDS[name]
    after = replace(before, cards=replace(before.cards, **{name: field.other}))
    assert (label_shape(before, request(gib(1))) != label_shape(after, request(gib(1)))) is field.judged


def test_every_array_of_a_block_is_annotated() -> None:
    exposed = {name for name, array in vars(Block(2)).items() if isinstance(array, np.ndarray)}
    assert exposed == set(Block.__annotations__)


# -- measures

LIMITED = [measure for measure in Charge._fields if measure != "shares"]
"""What a card can run out of. `shares` has no limit."""


def test_every_measure_is_recorded() -> None:
    assert {field.name for field in fields(Slice)} - {"uuid", "index", "minor"} == set(LIMITED)
    assert records._Slice.__struct_fields__ == tuple(field.name for field in fields(Slice))
    assert handover_record._Part.__struct_fields__ == ("uuid", *Charge._fields)
    holding = Holding(Placement("n1", "aliquot", {}), {"GPU-0": Charge(*range(1, len(Charge._fields) + 1))})
    assert (
        handover_record.read(handover_record.write(handover_record.HandOverRecord("u", "default/p", holding))).holding
        == holding
    )


def test_every_measure_is_compared_on_arrays_and_in_the_search() -> None:
    assert {field.name for field in fields(Need)} - {"whole"} == set(LIMITED)
    free = {name for name in Block.__annotations__ if name.startswith("free_")}
    assert free == {f"free_{measure}" for measure in LIMITED}
    assert free == {field.name for field in fields(Room) if field.name.startswith("free_")}
    assert len(get_args(Size)) == len(LIMITED)


@pytest.mark.parametrize("measure", LIMITED)
def test_a_card_is_full_in_every_measure(measure: str) -> None:
    gpu = make_gpu(slots=10)
    asked = Charge(slots=1) if measure == "slots" else Charge(shares=1)
    free = getattr(left_of(gpu, Charge()), measure)
    within, beyond = (asked._replace(**{measure: amount}) for amount in (free, free + 1))
    assert (conflict(gpu, Charge(), within), is_oversold(gpu, within)) == ("", False)
    assert conflict(gpu, Charge(), beyond)
    assert is_oversold(gpu, beyond)


@given(st.lists(st.tuples(st.sampled_from(Life), st.lists(st.integers(0, 9), min_size=3, max_size=3))))
def test_the_peak_of_arrays_is_the_peak_of_their_numbers(parts: list[tuple[Life, list[int]]]) -> None:
    arrays = [(life, np.array(sizes)) for life, sizes in parts]
    peaks = np.broadcast_to(peak_by(np.maximum, arrays), 3).tolist()
    assert peaks == [peak((life, sizes[place]) for life, sizes in parts) for place in range(3)]


# -- reasons

EXAMPLES: Mapping[Reason, tuple[NodeState, Request, Mapping[str, Any] | None]] = {
    Reason.NO_GPUS: (NodeState(NodeGpus("n1", (), 1), {}), request(gib(1)), None),
    Reason.NOT_SERVED: (node(dialects=frozenset(["hami"])), request(gib(1)), None),
    Reason.WRONG_POOL: (node(pool="b"), request(gib(1)), {"quota": {"T4": 1}, "pool": ["a"]}),
    Reason.NOT_IN_QUOTA: (node(), request(gib(1)), {"quota": {"A100": 1}}),
    Reason.OVER_QUOTA: (node(), request(gib(1)), {"quota": {"T4": 0}}),
    Reason.WRONG_MODEL: (node(), request(gib(1), models=wish("A100")), None),
    Reason.WRONG_CARD: (node(), request(gib(1), not_uuids=frozenset(["GPU-n1-0"])), None),
    Reason.NOT_PROMISED: (
        node("n1", {}, {"model": "A100"}, observed=True),
        request(gib(1), models=wish("A100")),
        None,
    ),
    Reason.NOT_SELLABLE: (node("n1", {"healthy": False}), request(gib(1)), None),
    Reason.WRONG_MODE: (node("n1", {"mode": Mode.MPS}), request(gib(1)), None),
    Reason.TOO_LARGE: (node(), request(gib(16)), None),
    Reason.NO_TOPOLOGY: (node("n1", {}, {}), request(gib(1, cards=2), topology=Topology.NVLINK), None),
    Reason.NO_CARD_FITS: (node(used=[8]), request(gib(8)), None),
}
OF_MANY_NODES = {Reason.UNKNOWN_NODE, Reason.SEARCH_LIMIT}
"""test_judge.py and test_effort.py have examples of these."""


def test_every_reason_has_an_example() -> None:
    assert EXAMPLES.keys() | OF_MANY_NODES == set(Reason)


@pytest.mark.parametrize("reason", EXAMPLES)
def test_the_judgement_and_the_explanation_give_every_reason(reason: Reason) -> None:
    state, asked, entry = EXAMPLES[reason]
    fleet, decision = Fleet(), quota([state], asked, entry) if entry else None
    fleet.put(state.cards, state.used)
    assert judge(fleet, asked, quota=decision).refusal("n1") is reason
    assert node_reason(state, asked, decision) is reason
