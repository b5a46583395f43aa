"""gpushare with a number of cards: parts of several cards, and whole ones."""

import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from aliquot.dialects import Demand, demand_of, holding_of, placement_of, standard_dialects
from aliquot.dialects.gpushare import ASSIGNED, ASSUME_TIME, CONTAINER, DEV, IDX, POD
from aliquot.dialects.gpushare_records import ALLOCATION
from aliquot.errors import AliquotError, BadDemand, BadRecord
from aliquot.model import Charge, Memory, NodeGpus, Part, Placement, Pod, Request, Unit, charges, cut
from aliquot.model.records import PLACEMENT, write_placement
from tests.factories import GPU_COUNT, GPU_MEM, container_manifest, make_cards, make_placement, make_pod

DIALECTS = standard_dialects()
GPUSHARE = DIALECTS["gpushare"]
ROOT = Path(__file__).parents[3]
FOUR = make_cards(mib=(15360, 15360, 24576, 15360))


def asking(name: str = "main", mem: Any = None, count: Any = None, **fields: Any) -> dict[str, Any]:
    wanted = {GPU_MEM: mem, GPU_COUNT: count}
    limits = {resource: str(amount) for resource, amount in wanted.items() if amount is not None}
    return container_manifest(name, None, resources={"limits": limits}, **fields)


def pod(*containers: dict[str, Any], label: str | None = None, **fields: Any) -> Pod:
    labels = {} if label is None else {GPU_COUNT: label}
    metadata = {"labels": labels, "annotations": fields.pop("annotations", {})}
    return make_pod(containers=list(containers) or [asking(mem=8)], metadata=metadata, **fields)


def placed(request: Request, cards: NodeGpus, **indexes: tuple[int, ...]) -> Placement:
    slices = {
        asked.name: tuple(cut(asked.part, cards.by_index[index], cards.unit_mib) for index in indexes[asked.name])
        for asked in request.containers
    }
    return Placement(cards.node, "gpushare", slices)


# -- demand

FOUR_EACH = Part(2, memory=Memory(4, Unit.NODE))
ONE_EACH = Part(2, memory=Memory(1, Unit.NODE))

DEMANDS: list[Any] = [
    pytest.param({"label": "2"}, [asking(mem=8)], True, [FOUR_EACH], id="the label: so many cards share the memory"),
    pytest.param({"label": "1"}, [asking(mem=8)], True, [Part(memory=Memory(8, Unit.NODE))], id="one card is one card"),
    pytest.param({}, [asking(mem=8, count=2)], True, [FOUR_EACH], id="the resource beside memory says the same"),
    pytest.param({"label": "2"}, [asking(mem=8, count=2)], True, [FOUR_EACH], id="both, and they agree"),
    pytest.param(
        {"label": "2"},
        [asking("a", mem=8), asking("b", mem=2), asking("c")],
        True,
        [FOUR_EACH, ONE_EACH],
        id="every container's memory is divided",
    ),
    pytest.param(
        {}, [asking("a", mem=8, count=2), asking("b", mem=2)], True, [FOUR_EACH, ONE_EACH], id="one container says it"
    ),
    pytest.param({}, [asking(count=2)], False, [Part(2, whole=True)], id="the resource alone: whole cards"),
    pytest.param({}, [asking(mem=0, count=1)], False, [Part(1, whole=True)], id="no memory is no memory"),
    pytest.param({"label": "2"}, [asking(count=2)], False, [Part(2, whole=True)], id="a label that says the same"),
    pytest.param(
        {},
        [asking("a", count=2), asking("b", count=1)],
        False,
        [Part(2, whole=True), Part(1, whole=True)],
        id="whole cards for each container",
    ),
]


@pytest.mark.parametrize(("fields", "containers", "together", "parts"), DEMANDS)
def test_a_number_of_cards_is_asked_by_label_or_resource(
    fields: dict[str, Any], containers: list[dict[str, Any]], together: bool, parts: list[Part]
) -> None:
    request = GPUSHARE.demand(pod(*containers, **fields))
    assert ([asked.part for asked in request.containers], request.together) == (parts, together)


BAD: list[Any] = [
    pytest.param(
        {"label": "3"},
        [asking(mem=8)],
        f"container main, limits, {GPU_MEM}: 8 units cannot be split into 3 equal parts, .* ask for 6 or 9 units",
        id="what does not divide",
    ),
    pytest.param({"label": "3"}, [asking(mem=2)], "ask for 3 units", id="less than one unit a card"),
    pytest.param({"label": "2"}, [asking("a", mem=8), asking("b", mem=1)], "container b, limits", id="of one of two"),
    pytest.param({"label": "x"}, [asking(mem=8)], f"label {GPU_COUNT}: 'x' is not a number of cards", id="a word"),
    pytest.param({"label": "0"}, [asking(mem=8)], f"label {GPU_COUNT}: '0' is not a number of cards", id="no card"),
    pytest.param({"label": ""}, [asking(mem=8)], f"label {GPU_COUNT}: '' is not a number of cards", id="nothing"),
    pytest.param({"label": "-2"}, [asking(mem=8)], f"label {GPU_COUNT}: '-2' is not", id="less than none"),
    pytest.param({"label": "2000"}, [asking(mem=8000)], f"{GPU_COUNT}: no node has 2000 cards", id="absurdly many"),
    pytest.param({}, [asking(count="9E")], f"{GPU_COUNT}: no node has 9", id="absurdly many whole cards"),
    pytest.param({}, [asking(count="x")], f"container main, limits, {GPU_COUNT}: 'x' is not", id="no quantity"),
    pytest.param({}, [asking(count=0)], f"more than 0 of {GPU_MEM} or {GPU_COUNT}", id="no whole card"),
    pytest.param({"label": "2"}, [asking(mem=0)], "no container of the pod asks for more than 0", id="2 times nothing"),
    pytest.param({"label": "2"}, [asking(mem=8, count=4)], r"different numbers of cards \(2, 4\)", id="two numbers"),
    pytest.param({"label": "2"}, [asking(count=1)], r"different numbers of cards \(1, 2\)", id="for whole cards, too"),
    pytest.param(
        {}, [asking("a", mem=8, count=2), asking("b", mem=8, count=4)], "containers share the same", id="each its own"
    ),
    pytest.param(
        {},
        [asking("a", mem=8), asking("b", count=1)],
        f"container b, limits: {GPU_COUNT} without {GPU_MEM} is for whole cards",
        id="shared and whole",
    ),
    pytest.param({"label": "2"}, [asking(mem="16Gi")], "write 16, not 16Gi", id="bytes instead of units"),
]


@pytest.mark.parametrize(("fields", "containers", "text"), BAD)
def test_a_bad_number_of_cards_is_refused_with_the_way_out(
    fields: dict[str, Any], containers: list[dict[str, Any]], text: str
) -> None:
    with pytest.raises(BadDemand, match=text):
        demand_of(pod(*containers, **fields), DIALECTS)


def test_the_example_asks_for_parts_of_two_cards() -> None:
    manifest = yaml.safe_load((ROOT / "examples" / "gpushare-two-cards.yaml").read_text())
    demand = demand_of(msgspec.convert(manifest, Pod), DIALECTS)
    assert demand is not None
    assert [asked.part for asked in demand.request.containers] == [FOUR_EACH]


# -- what is written


def test_several_cards_are_written_as_a_list_and_as_an_allocation() -> None:
    asked = pod(asking("plain"), asking("a", mem=8), asking("b", mem=2), label="2")
    request = GPUSHARE.demand(asked)
    written = GPUSHARE.annotations(asked, request, placed(request, FOUR, a=(2, 0), b=(0, 2)), FOUR, 17)
    assert dict(written) == {
        IDX: "0,2",
        DEV: "24",
        POD: "10",
        ASSIGNED: "false",
        ASSUME_TIME: "17",
        ALLOCATION: '{"1":{"0":4,"2":4},"2":{"0":1,"2":1}}',
    }


def test_whole_cards_are_written_with_all_their_units() -> None:
    asked = pod(asking("a", count=2), asking("b", count=1))
    request = GPUSHARE.demand(asked)
    written = GPUSHARE.annotations(asked, request, placed(request, FOUR, a=(1, 2), b=(3,)), FOUR, 0)
    assert (written[IDX], written[POD], written[DEV]) == ("1,2,3", "54", "24")
    assert json.loads(written[ALLOCATION]) == {"0": {"1": 15, "2": 24}, "1": {"3": 15}}


def test_one_whole_card_is_written_in_the_original_s_five_keys() -> None:
    asked = pod(asking(count=1))
    request = GPUSHARE.demand(asked)
    assert dict(GPUSHARE.annotations(asked, request, placed(request, FOUR, main=(3,)), FOUR, 17)) == {
        IDX: "3",
        DEV: "15",
        POD: "15",
        ASSIGNED: "false",
        ASSUME_TIME: "17",
    }


def test_every_key_that_is_written_is_guarded() -> None:
    asked = pod(label="2")
    request = GPUSHARE.demand(asked)
    written = GPUSHARE.annotations(asked, request, placed(request, FOUR, main=(0, 1)), FOUR, 0)
    guards = [key.removesuffix("*") for key in GPUSHARE.placement_keys]
    assert [key for key in written if not key.startswith(tuple(guards))] == []


def test_a_container_finds_its_share_of_each_card() -> None:
    """CONTAINER / DEV is the share of a card that a program keeps to: on no card may it be more than its part."""
    asked = pod(asking("a", mem=8), asking("b", mem=2), label="2")
    request = GPUSHARE.demand(asked)
    placement = placed(request, FOUR, a=(0, 2), b=(0, 2))
    assert GPUSHARE.environment(asked, request, "a", placement, FOUR) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-n1-0,GPU-n1-2",
        IDX: "0,2",
        POD: "10",
        CONTAINER: "4",
        DEV: "24",
    }


def test_a_container_finds_its_whole_cards() -> None:
    asked = pod(asking("a", count=2), asking("b", count=1))
    request = GPUSHARE.demand(asked)
    placement = placed(request, FOUR, a=(0, 1), b=(2,))
    assert GPUSHARE.environment(asked, request, "b", placement, FOUR) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-n1-2",
        IDX: "2",
        POD: "54",
        CONTAINER: "24",
        DEV: "24",
    }


def test_the_two_resources_are_offered_in_their_own_units() -> None:
    cards = make_cards(mib=(2048, 1024))
    assert GPUSHARE.device_ids(GPU_COUNT, cards) == [("GPU-n1-0", "GPU-n1-0"), ("GPU-n1-1", "GPU-n1-1")]
    assert len(GPUSHARE.device_ids(GPU_MEM, cards)) == 3


@pytest.mark.parametrize(
    ("slices", "text"),
    [
        pytest.param({"a": (0,), "b": (0, 1)}, "must name 2 of the cards of node n1 for container a", id="too few"),
        pytest.param({"a": (0, 1), "b": (1, 2)}, "the same cards for all containers", id="not the same"),
        pytest.param({"a": (), "b": (1, 2)}, "for container a, and names none", id="none"),
    ],
)
def test_a_placement_that_is_not_what_was_asked_is_never_written(slices: dict[str, Any], text: str) -> None:
    asked = pod(asking("a", mem=2), asking("b", mem=2), label="2")
    request = GPUSHARE.demand(asked)
    with pytest.raises(BadRecord, match=text):
        GPUSHARE.annotations(asked, request, placed(request, FOUR, **slices), FOUR, 0)


# -- reading back what others have placed


def charged(bound: Pod, cards: NodeGpus = FOUR) -> dict[int, Charge]:
    request = GPUSHARE.held(bound)
    placement = placement_of(bound, Demand(GPUSHARE, request), cards)
    return {cards.by_uuid[uuid].index: charge for uuid, charge in charges(placement, request).items()}


def gib(amount: int, shares: int = 1) -> Charge:
    return Charge(0, amount * 1024, shares=shares)


READ: list[Any] = [
    pytest.param({ALLOCATION: '{"0":{"1":4,"3":4}}'}, {1: gib(4), 3: gib(4)}, id="an allocation"),
    pytest.param({ALLOCATION: '{"0":{"1":4,"3":4}}', IDX: "0,1"}, {1: gib(4), 3: gib(4)}, id="it wins over the index"),
    pytest.param(
        {ALLOCATION: '{"0":{"1":99,"3":1}}'}, {1: gib(15), 3: gib(4)}, id="the larger one of record and demand"
    ),
    pytest.param({ALLOCATION: '{"0":{"1":4,"2":0,"3":4}}'}, {1: gib(4), 3: gib(4)}, id="nothing of a card is nothing"),
    pytest.param({ALLOCATION: "{", IDX: "0,1"}, {0: gib(4), 1: gib(4)}, id="bad JSON: the index"),
    pytest.param({ALLOCATION: '{"0":{"x":4}}', IDX: "0,1"}, {0: gib(4), 1: gib(4)}, id="a card in words: the index"),
    pytest.param({ALLOCATION: "[]", IDX: "0,1"}, {0: gib(4), 1: gib(4)}, id="another shape: the index"),
    pytest.param({ALLOCATION: "{}", IDX: "0,1"}, {0: gib(4), 1: gib(4)}, id="an empty one: the index"),
    pytest.param({ALLOCATION: '{"0":{"-1":4}}', IDX: "0,1"}, {0: gib(4), 1: gib(4)}, id="negative: the index"),
    pytest.param({IDX: "0,1"}, {0: gib(4), 1: gib(4)}, id="a list of indexes"),
    pytest.param({ALLOCATION: '{"0":{"1":8}}'}, {1: gib(8)}, id="an allocation of one card"),
    pytest.param({ALLOCATION: '{"0":{"1":4,"3":4}}', IDX: "1"}, {1: gib(4), 3: gib(4)}, id="and over a single index"),
    pytest.param({IDX: "2"}, {2: gib(8)}, id="one index: the original, which knows no number of cards"),
]


@pytest.mark.parametrize(("annotations", "expected"), READ)
def test_a_pod_that_others_placed_on_several_cards_is_read_back(
    annotations: dict[str, str], expected: dict[int, Charge]
) -> None:
    assert charged(pod(label="2", annotations=annotations, node="n1")) == expected


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        pytest.param({ALLOCATION: '{"0":{"1":4,"9":4}}'}, f"{ALLOCATION} names card 9", id="an allocation"),
        pytest.param({IDX: "0,9"}, f"{IDX} names card 9", id="a list"),
        pytest.param({IDX: "0,0"}, f"{IDX}: '0,0' is not a list of distinct", id="a card twice"),
    ],
)
def test_a_record_that_cannot_be_is_refused_by_its_key(annotations: dict[str, str], text: str) -> None:
    with pytest.raises(BadRecord, match=text):
        charged(pod(label="2", annotations=annotations, node="n1"))


def test_containers_are_found_by_their_place_in_the_pod() -> None:
    two = (asking("plain"), asking("a", count=1), asking("b", count=2))
    init = [asking("i", count=3)]
    record = '{"1":{"3":15},"2":{"0":15,"1":15}}'
    bound = pod(*two, annotations={ALLOCATION: record}, node="n1", initContainers=init)
    placement = GPUSHARE.read_back(bound, FOUR)
    assert placement is not None
    indexes = {name: [part.index for part in parts] for name, parts in placement.containers.items()}
    assert indexes == {"i": [0, 1, 3], "a": [3], "b": [0, 1]}


def test_whole_cards_without_an_allocation_are_dealt_one_after_another() -> None:
    init = [asking("s", count=1, restartPolicy="Always"), asking("i", count=2)]
    bound = pod(asking("a", count=1), asking("b", count=1), annotations={IDX: "0,1,2"}, node="n1", initContainers=init)
    placement = GPUSHARE.read_back(bound, FOUR)
    assert placement is not None
    indexes = {name: [part.index for part in parts] for name, parts in placement.containers.items()}
    assert indexes == {"s": [0], "i": [1, 2], "a": [1], "b": [2]}


def test_a_pod_of_the_original_whose_label_says_nonsense_holds_its_memory() -> None:
    assert charged(pod(label="x", annotations={IDX: "1"}, node="n1")) == {1: gib(8)}
    assert charged(pod(label="3", annotations={IDX: "1"}, node="n1")) == {1: gib(8)}


def test_ack_s_mark_of_a_hand_over_counts() -> None:
    assert GPUSHARE.handed_over(pod(annotations={"scheduler.framework.gpushare.assigned": "true"}))
    assert not GPUSHARE.handed_over(pod(annotations={"scheduler.framework.gpushare.assigned": "false"}))


@pytest.mark.parametrize("label", ["2", "4", "8", "1", "x"])
def test_a_running_pod_that_rewrites_its_label_holds_at_least_what_it_got(label: str) -> None:
    """A label can be changed at any time: more cards of less each must not free the half of the two that it has."""
    request = GPUSHARE.demand(pod(label="2"))
    record = write_placement(placed(request, FOUR, main=(0, 1)))
    held = charged(pod(label=label, annotations={PLACEMENT: record}, node="n1"))
    assert held.keys() == {0, 1}
    assert all(charge.mib >= 4096 for charge in held.values())


@pytest.mark.parametrize("label", ["4", "8"])
def test_a_label_that_was_rewritten_does_not_divide_what_ack_has_placed(label: str) -> None:
    record = {ALLOCATION: '{"0":{"1":1,"3":1}}'}
    assert charged(pod(label=label, annotations=record, node="n1")) == {1: gib(4), 3: gib(4)}


@pytest.mark.parametrize("label", [None, "x", "1", "2", "7"])
@pytest.mark.parametrize("mem", [None, 0])
def test_a_running_pod_keeps_its_whole_cards_whatever_a_label_says(label: str | None, mem: int | None) -> None:
    containers = [asking(mem=mem, count=2)]
    record = write_placement(placed(GPUSHARE.demand(pod(*containers)), FOUR, main=(0, 1)))
    for annotations in ({PLACEMENT: record}, {ALLOCATION: '{"0":{"0":15,"1":15}}'}):
        held = charged(pod(*containers, label=label, annotations=annotations, node="n1"))
        assert held == dict.fromkeys((0, 1), Charge(100, 15360, shares=1))


def test_a_label_does_not_let_a_record_name_fewer_cards_than_the_limits() -> None:
    record = write_placement(make_placement(FOUR, 0, main=1))
    for containers in ([asking(count=2)], [asking(mem=8, count=2)]):
        with pytest.raises(BadRecord, match="names 1 cards for container main, which asks for 2"):
            charged(pod(*containers, label="1", annotations={PLACEMENT: record}, node="n1"))


def test_one_whole_card_of_a_single_index_is_read_back() -> None:
    for containers in ([asking(count=1)], [asking(mem=0, count=1)]):
        bound = pod(*containers, annotations={IDX: "3"}, node="n1")
        assert charged(bound) == {3: Charge(100, 15360, shares=1)}


@pytest.mark.parametrize(
    ("containers", "label", "charge"),
    [
        pytest.param([asking(mem=8)], "8", gib(8), id="a label divides nothing"),
        pytest.param([asking(mem=8)], None, gib(8), id="memory"),
        pytest.param([asking(mem=8, count=2)], None, gib(8), id="nor do the limits: all of it may be on one card"),
        pytest.param([asking(count=2)], "x", Charge(100, 15360, shares=1), id="whole cards"),
        pytest.param([asking("main", mem=9), asking("b", mem=9)], None, gib(15, 2), id="no more than the card has"),
    ],
)
def test_a_running_pod_without_a_record_is_charged_by_its_limits_on_every_card(
    containers: list[dict[str, Any]], label: str | None, charge: Charge
) -> None:
    running = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    held = holding_of(pod(*containers, label=label, node="n1", status=running), make_cards(), DIALECTS)
    assert held is not None
    assert held.charges == dict.fromkeys(make_cards().by_uuid, charge)


def test_what_we_write_twice_on_a_pod_with_a_sidecar_is_charged_once() -> None:
    """The allocation has no place for sidecars: which of the cards is theirs, our own record says."""
    side = [asking("s", count=1, restartPolicy="Always")]
    asked = pod(asking("a", count=1), initContainers=side)
    request = GPUSHARE.demand(asked)
    placement = placed(request, FOUR, s=(1,), a=(0,))
    written = {**GPUSHARE.annotations(asked, request, placement, FOUR, 0), PLACEMENT: write_placement(placement)}
    held = holding_of(pod(asking("a", count=1), initContainers=side, annotations=written, node="n1"), FOUR, DIALECTS)
    assert held is not None
    assert (held.charges, held.doubt) == (charges(placement, request), "")


# -- everything that can be asked


@st.composite
def pods(draw: st.DrawFn) -> tuple[list[dict[str, Any]], str | None, list[tuple[int, ...]]]:
    """GPU containers, a label, and different cards of a node of eight for each of them."""
    number = draw(st.integers(1, 3))
    if draw(st.booleans()):
        count = draw(st.integers(1, 8))
        cards = tuple(sorted(draw(st.permutations(range(8)))[:count]))
        containers = [asking(f"c{n}", mem=count * draw(st.integers(1, 15 // number))) for n in range(number)]
        return containers, str(count), [cards] * number
    left = list(draw(st.permutations(range(8))))
    counts = [draw(st.integers(1, 2)) for _ in range(number)]
    given_cards = [tuple(sorted(left.pop() for _ in range(count))) for count in counts]
    return [asking(f"c{n}", count=count) for n, count in enumerate(counts)], None, given_cards


@given(pods(), st.integers(0, 2))
def test_what_is_written_is_read_back(
    drawn: tuple[list[dict[str, Any]], str | None, list[tuple[int, ...]]], plain: int
) -> None:
    containers, label, given_cards = drawn
    cards = make_cards(mib=(15360, 16276, 24576, 15360) * 2)
    spec = [*(asking(f"plain{n}") for n in range(plain)), *containers]
    unbound = pod(*spec, label=label)
    request = GPUSHARE.demand(unbound)
    indexes = {asked.name: own for asked, own in zip(request.containers, given_cards, strict=True)}
    placement = placed(request, cards, **indexes)
    written = dict(GPUSHARE.annotations(unbound, request, placement, cards, 0))
    bound = pod(*spec, label=label, annotations=written, node="n1")
    assert GPUSHARE.read_back(bound, cards) == placement
    assert placement_of(bound, Demand(GPUSHARE, GPUSHARE.held(bound)), cards) == placement


@given(
    st.one_of(st.text(), st.integers().map(str)),
    st.dictionaries(st.sampled_from([IDX, ALLOCATION, POD, PLACEMENT]), st.text()),
    st.text(max_size=6),
)
def test_no_text_raises_anything_but_our_own_errors(label: str, annotations: dict[str, str], count: str) -> None:
    for containers in ([asking(mem=8)], [asking(mem=8, count=count)], [asking(count=count)]):
        bound = pod(*containers, label=label, annotations=annotations, node="n1")
        with contextlib.suppress(AliquotError):
            demand_of(bound, DIALECTS)
        with contextlib.suppress(AliquotError):
            charged(bound)


def test_our_own_record_of_one_card_still_reads() -> None:
    record = write_placement(make_placement(FOUR, 1, main=8192))
    assert charged(pod(annotations={PLACEMENT: record}, node="n1")) == {1: gib(8)}
