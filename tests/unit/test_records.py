"""Our records on pods and nodes: what is written is read back, and nothing else is."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.errors import BadRecord
from aliquot.model import Gpu, Link, NodeGpus, Placement, Slice
from aliquot.model.bounds import LARGEST_INVENTORY, LARGEST_RECORD, LONGEST_NAME, MAX_CARDS, MAX_MIB
from aliquot.model.records import read_inventory, read_placement, write_inventory, write_placement
from tests.factories import make_cards, make_placement

texts = st.text(st.characters(codec="utf-8"), max_size=20)
amounts = st.integers(0, 2**40)
sizes = st.integers(0, MAX_MIB)
slices = st.builds(Slice, texts, amounts, amounts, amounts, sizes)
placements = st.builds(
    Placement, texts, texts, st.dictionaries(texts, st.lists(slices, max_size=3).map(tuple), max_size=3)
)
gpus = st.builds(Gpu, texts, amounts, amounts, texts, sizes, st.none() | st.integers(0, 8), st.booleans())
nodes = st.builds(
    lambda cards, unit, driver: NodeGpus("n1", tuple(sorted(cards, key=lambda gpu: gpu.index)), unit, driver=driver),
    st.lists(gpus, max_size=4, unique_by=(lambda gpu: gpu.uuid, lambda gpu: gpu.index)),
    st.integers(1, 2**20),
    texts,
)


@given(placements)
def test_a_placement_is_read_as_it_was_written(placement: Placement) -> None:
    assert read_placement(write_placement(placement)) == placement


@given(nodes)
def test_an_inventory_is_read_as_it_was_written(cards: NodeGpus) -> None:
    assert read_inventory("n1", write_inventory(cards)) == cards


def test_a_placement_is_written_as_the_wire_has_it() -> None:
    assert write_placement(make_placement(make_cards(), 1, main=3072)) == (
        '{"v":1,"node":"n1","dialect":"gpushare","containers":'
        '{"main":[{"uuid":"GPU-n1-1","index":1,"minor":4,"cores":0,"mib":3072}]}}'
    )


def test_an_inventory_is_written_as_the_wire_has_it() -> None:
    assert write_inventory(make_cards(mib=(15360, 8192), unhealthy=[1])) == (
        '{"v":1,"unitMiB":1024,"gpus":['
        '{"uuid":"GPU-n1-0","index":0,"minor":3,"model":"Tesla T4","mib":15360},'
        '{"uuid":"GPU-n1-1","index":1,"minor":4,"model":"Tesla T4","mib":8192,"healthy":false}]}'
    )
    assert write_inventory(NodeGpus("n1", (), 1024, driver="550.90.07")) == (
        '{"v":1,"unitMiB":1024,"gpus":[],"driver":"550.90.07"}'
    )


def test_cards_are_ordered_by_index_and_later_fields_are_ignored() -> None:
    card = '{{"uuid":"{0}","index":{0},"minor":0,"model":"m","mib":1,"later":true}}'
    text = f'{{"v":1,"unitMiB":1,"gpus":[{card.format(2)},{card.format(0)}],"later":1}}'
    assert [gpu.index for gpu in read_inventory("n1", text).gpus] == [0, 2]


def test_the_largest_machine_fits_into_an_annotation_with_room_for_others() -> None:
    """Sixteen cards that are all linked, each cut into seven instances, with names as long as NVML has them."""
    model, driver = "M" * 96, "D" * 80
    uuids = [f"GPU-{number:036}" for number in range(16)]
    cards = [
        Gpu(uuid, index, index, model, MAX_MIB, 7, links=tuple(Link(other, 100) for other in uuids if other != uuid))
        for index, uuid in enumerate(uuids)
    ]
    instances = [
        replace(
            card,
            uuid=f"MIG-{card.index:018}{place:018}",
            index=1000 * (card.index + 1) + place,
            healthy=False,
            parent=card.uuid,
            profile="1g.10gb+me",
            links=(),
        )
        for card in cards
        for place in range(7)
    ]
    node = NodeGpus("n1", (*cards, *instances), 1024, driver=driver)
    text = write_inventory(node)
    assert len(node.gpus) == MAX_CARDS
    assert len(text) < LARGEST_INVENTORY / 2
    assert read_inventory("n1", text) == node


BROKEN = [
    pytest.param("", id="nothing"),
    pytest.param("{", id="half a record"),
    pytest.param("null", id="null"),
    pytest.param("[]", id="a list"),
    pytest.param("{}", id="no fields"),
    pytest.param("\ud800", id="no UTF-8"),
    pytest.param("[" * 100_000, id="a hundred thousand brackets"),
    pytest.param('{"v":1,"later":' + "[" * 100_000, id="as many in a field of later times"),
]


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_no_record_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(BadRecord, match=r"aliquot.io/placement"):
        read_placement(text)
    with pytest.raises(BadRecord, match=r"aliquot.io/inventory"):
        read_inventory("n1", text)


PART = '{{"uuid":"a","index":0,"minor":0,"cores":0,"mib":1{}}}'
PLACEMENT = '{{"v":{v},"node":"n1","dialect":"d","containers":{{"c":[{part}]}}}}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(PLACEMENT.format(v=2, part=PART.format("")), "has version 2; this Aliquot", id="a later one"),
        pytest.param(PLACEMENT.format(v='"1"', part=PART.format("")), "Expected `int`", id="a version that is text"),
        pytest.param(PLACEMENT.format(v=1, part=PART.format(',"mib":-1')), ">= 0", id="a negative part"),
        pytest.param(PLACEMENT.format(v=1, part=PART.format(',"cores":-1')), ">= 0", id="negative cores"),
        pytest.param(PLACEMENT.format(v=1, part=PART.format(',"mib":1e9')), "Expected `int`", id="a float"),
        pytest.param(PLACEMENT.format(v=1, part=PART.format(f',"mib":{2**63}')), "<= ", id="beyond 64 bits"),
        pytest.param(PLACEMENT.format(v=1, part="{}"), "missing required field", id="a part without fields"),
        pytest.param(PLACEMENT.format(v=1, part="7"), "Expected `object`", id="a part that is a number"),
    ],
)
def test_a_placement_that_cannot_be_right_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(BadRecord, match=f"aliquot.io/placement .*{why}"):
        read_placement(text)


CARD = '{"uuid":"a","index":0,"minor":0,"model":"m","mib":1}'
OTHER_INDEX = '{"uuid":"a","index":1,"minor":0,"model":"m","mib":1}'
OTHER_UUID = '{"uuid":"b","index":0,"minor":0,"model":"m","mib":1}'


@pytest.mark.parametrize(
    ("unit", "cards", "why"),
    [
        pytest.param("0", CARD, ">= 1", id="a unit of nothing"),
        pytest.param("-1", CARD, ">= 1", id="a negative unit"),
        pytest.param(str(2**62), CARD, "<= ", id="a unit beyond all memory"),
        pytest.param("1", CARD.replace('"mib":1', '"mib":-1'), ">= 0", id="a card of negative size"),
        pytest.param("1", CARD.replace('"mib":1', f'"mib":{10**30}'), "<= ", id="a card beyond 64 bits"),
        pytest.param("1", f"{CARD},{OTHER_INDEX}", "names a card twice", id="one uuid twice"),
        pytest.param("1", f"{CARD},{OTHER_UUID}", "names a card twice", id="one index twice"),
    ],
)
def test_an_inventory_that_cannot_be_right_is_refused_with_the_reason(unit: str, cards: str, why: str) -> None:
    with pytest.raises(BadRecord, match=f"aliquot.io/inventory .*{why}"):
        read_inventory("n1", f'{{"v":1,"unitMiB":{unit},"gpus":[{cards}]}}')


# -- hostile sizes


def inventory_of(*cards: str) -> str:
    return f'{{"v":1,"unitMiB":1,"gpus":[{",".join(cards)}]}}'


def card(index: int, **fields: Any) -> str:
    plain = {"uuid": f"GPU-{index}", "index": index, "minor": index, "model": "m", "mib": 1}
    return msgspec.json.encode(plain | fields).decode()


def short_card(index: int) -> str:
    return f'{{"uuid":"{index:x}","index":{index},"minor":0,"model":"","mib":9}}'


LONG = "x" * (LONGEST_NAME + 1)
HOSTILE_INVENTORIES = [
    pytest.param(inventory_of(*map(card, range(MAX_CARDS + 1))), "128", id="a card too many"),
    pytest.param(inventory_of(*map(short_card, range(4600))), "128", id="4,600 cards in what an annotation holds"),
    pytest.param(inventory_of(card(0, uuid=LONG)), "512", id="a long uuid"),
    pytest.param(inventory_of(card(0, model=LONG)), "512", id="a long model"),
    pytest.param(inventory_of(card(0, parent=LONG)), "512", id="a long parent"),
    pytest.param(inventory_of(card(0, profile=LONG)), "512", id="a long profile"),
    pytest.param(inventory_of(card(0, links={LONG: 1})), "512", id="a long uuid of a link"),
    pytest.param(inventory_of(card(0, links={str(n): 1 for n in range(129)})), "128", id="more links than cards"),
    pytest.param(inventory_of(card(0, numa=2**70)), "numa", id="a NUMA node beyond 64 bits"),
    pytest.param(f'{{"v":1,"unitMiB":1,"gpus":[],"driver":"{LONG}"}}', "512", id="a long driver version"),
    pytest.param(inventory_of(card(0)) + " " * LARGEST_INVENTORY, "262144 bytes", id="too many bytes"),
    pytest.param(
        inventory_of(card(0, model="é" * 100)) + "é" * 131_072, "262144 bytes", id="too many bytes, not letters"
    ),
]


@pytest.mark.parametrize(("text", "why"), HOSTILE_INVENTORIES)
def test_an_inventory_that_is_too_large_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadRecord, match=f"aliquot.io/inventory .*{why}"):
        read_inventory("n1", text)


def test_sixteen_cards_of_seven_instances_each_are_read() -> None:
    names = [f"GPU-{index:032x}" for index in range(MAX_CARDS)]
    gpus = tuple(
        Gpu(uuid, index, index, "NVIDIA A100-SXM4-80GB", 10240, parent=names[index // 8] if index % 8 else "")
        for index, uuid in enumerate(names)
    )
    cards = NodeGpus("n1", gpus, 1024)
    assert read_inventory("n1", write_inventory(cards)) == cards


HOSTILE_PLACEMENTS = [
    pytest.param(PLACEMENT.format(v=1, part=",".join([PART.format("")] * (MAX_CARDS + 1))), "128", id="many cards"),
    pytest.param(PLACEMENT.format(v=1, part=PART.format(f',"uuid":"{LONG}"')), "512", id="a long uuid"),
    pytest.param(PLACEMENT.format(v=1, part="").replace('"n1"', f'"{LONG}"'), "512", id="a long node"),
    pytest.param(
        PLACEMENT.format(v=1, part="").replace('"c":[]', ",".join(f'"{n}":[]' for n in range(513))),
        "512",
        id="many containers",
    ),
    pytest.param(PLACEMENT.format(v=1, part="") + " " * LARGEST_RECORD, "65536 bytes", id="too many bytes"),
]


@pytest.mark.parametrize(("text", "why"), HOSTILE_PLACEMENTS)
def test_a_placement_that_is_too_large_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadRecord, match=f"aliquot.io/placement .*{why}"):
        read_placement(text)
