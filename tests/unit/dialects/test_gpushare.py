"""gpushare's words: what it asks for, what it writes, what its containers find."""

from typing import Any

import msgspec
import pytest

from aliquot.dialects import cards_of, demand_of, holding_of, standard_dialects
from aliquot.dialects.gpushare import ASSIGNED, ASSUME_TIME, CONTAINER, DEV, IDX, POD
from aliquot.errors import BadDemand, BadRecord, NotPlaced
from aliquot.model import Life, Memory, NodeGpus, Pod, Reason, Unit
from aliquot.model.records import INVENTORY
from tests.factories import (
    GPU_COUNT,
    GPU_MEM,
    container_manifest,
    make_cards,
    make_node,
    make_placement,
    make_pod,
)

DIALECTS = standard_dialects()
GPUSHARE = DIALECTS["gpushare"]

# -- demand


def test_a_pod_without_gpu_speaks_no_dialect() -> None:
    assert demand_of(make_pod(gpu_mem=None), DIALECTS) is None


def test_a_demand_counts_node_units_and_no_cores_for_each_gpu_container() -> None:
    pod = make_pod(
        containers=[container_manifest("a", 2), container_manifest("plain", None), container_manifest("zero", 0)],
        initContainers=[container_manifest("i", "1500m"), container_manifest("s", "1k", restartPolicy="Always")],
    )
    request = GPUSHARE.demand(pod)
    assert (request.uid, request.pod, request.dialect) == (pod.metadata.uid, "default/p", "gpushare")
    assert [(c.name, c.part.memory, c.part.cores, c.life) for c in request.containers] == [
        ("i", Memory(2, Unit.NODE), 0, Life.INIT),
        ("s", Memory(1000, Unit.NODE), 0, Life.SIDECAR),
        ("a", Memory(2, Unit.NODE), 0, Life.MAIN),
    ]


BAD: list[Any] = [
    pytest.param({"gpu_mem": 0}, f"no container of the pod asks for more than 0 of {GPU_MEM}", id="nothing"),
    pytest.param({"gpu_mem": "x"}, f"container main, limits, {GPU_MEM}: 'x' is not a Kubernetes quantity", id="a word"),
    pytest.param({"gpu_mem": "-3"}, f"container main, limits, {GPU_MEM}: '-3' is negative", id="less than nothing"),
    pytest.param({"gpu_mem": "16Gi"}, "write 16, not 16Gi", id="bytes instead of units"),
    pytest.param({"gpu_mem": "1000000001"}, "is more than any GPU has", id="more than any GPU has"),
]


@pytest.mark.parametrize(("pod", "text"), BAD)
def test_a_bad_demand_is_refused_with_the_field_and_what_to_write_instead(pod: dict[str, Any], text: str) -> None:
    with pytest.raises(BadDemand, match=text):
        demand_of(make_pod(**pod), DIALECTS)


# -- capacity of nodes without our agent

CAPACITY: list[Any] = [
    pytest.param({GPU_MEM: "30", GPU_COUNT: "2"}, 1024, [15, 15], id="30 of 2: GiB"),
    pytest.param({GPU_MEM: "200", GPU_COUNT: "2"}, 1024, [100, 100], id="100 a card: still GiB"),
    pytest.param({GPU_MEM: "202", GPU_COUNT: "2"}, 1, [101, 101], id="101 a card: MiB"),
    pytest.param({GPU_MEM: "32552", GPU_COUNT: "2"}, 1, [16276, 16276], id="32552 of 2: MiB"),
    pytest.param({GPU_MEM: "31", GPU_COUNT: "2"}, 1024, [15, 15], id="what does not divide is rounded down"),
    pytest.param({GPU_MEM: "1k", GPU_COUNT: "8"}, 1, [125] * 8, id="a canonical quantity"),
    pytest.param({GPU_MEM: 30, GPU_COUNT: 2}, 1024, [15, 15], id="numbers"),
    pytest.param({GPU_MEM: "30"}, 1024, [], id="no count"),
    pytest.param({GPU_MEM: "9E"}, 1, [], id="no count, and memory beyond all machines"),
    pytest.param({GPU_COUNT: "2"}, 1, [], id="no memory"),
    pytest.param({GPU_MEM: "0", GPU_COUNT: "2"}, 1, [], id="the plugin is gone"),
    pytest.param({GPU_MEM: "x", GPU_COUNT: "2"}, 1, [], id="no quantity"),
    pytest.param({GPU_MEM: "-30", GPU_COUNT: "2"}, 1, [], id="negative"),
    pytest.param({GPU_MEM: "30", GPU_COUNT: "1E"}, 1024, [], id="a count beyond all machines"),
    pytest.param({}, 1, [], id="a node without GPUs"),
]


@pytest.mark.parametrize(("capacity", "unit_mib", "units"), CAPACITY)
def test_a_node_without_inventory_is_read_by_its_status(
    capacity: dict[str, Any], unit_mib: int, units: list[int]
) -> None:
    cards = cards_of(make_node("old", capacity=capacity), DIALECTS)
    assert (cards.unit_mib, [cards.units(gpu) for gpu in cards.gpus]) == (unit_mib, units)
    assert [gpu.uuid for gpu in cards.gpus] == [f"old/{index}" for index in range(len(units))]


@pytest.mark.parametrize(
    ("capacity", "rest"),
    [
        pytest.param({GPU_MEM: "30", GPU_COUNT: "2"}, 0, id="the cards have all of it"),
        pytest.param({GPU_MEM: "31", GPU_COUNT: "2"}, 1, id="what does not divide"),
        pytest.param({GPU_MEM: "30"}, 30, id="no count"),
    ],
)
def test_memory_that_belongs_to_no_card_is_known(capacity: dict[str, Any], rest: int) -> None:
    assert cards_of(make_node("old", capacity=capacity), DIALECTS).rest_mib == rest * 1024


def test_memory_without_cards_does_not_hide_another_vendor_s_cards() -> None:
    cards = cards_of(make_node("old", capacity={GPU_MEM: "30", "nvidia.com/gpu": "4"}), DIALECTS)
    assert len(cards.gpus) == 4


def test_an_inventory_wins_over_the_status() -> None:
    published = make_cards(mib=(1024,))
    cards = cards_of(make_node("n1", published, capacity={GPU_MEM: "99", GPU_COUNT: "9"}), DIALECTS)
    assert (cards.gpus, cards.unit_mib) == (published.gpus, published.unit_mib)


def test_an_inventory_that_cannot_be_read_is_not_replaced_by_a_guess() -> None:
    with pytest.raises(BadRecord):
        cards_of(make_node("n1", annotations={INVENTORY: "{"}, capacity={GPU_MEM: "30", GPU_COUNT: "2"}), DIALECTS)


# -- what is written at bind and at the hand-over


@pytest.mark.parametrize(
    ("cards", "index", "units", "dev"),
    [
        pytest.param(make_cards(), 1, 3, "15", id="GiB"),
        pytest.param(make_cards(mib=(16276, 16276), unit_mib=1), 0, 8138, "16276", id="MiB"),
        pytest.param(make_cards(mib=(16276, 24187)), 1, 3, "23", id="cards of unequal size"),
    ],
)
def test_the_five_annotations_are_those_of_the_original(cards: NodeGpus, index: int, units: int, dev: str) -> None:
    """As the original gpushare does it."""
    placement = make_placement(cards, index, c0=units * cards.unit_mib)
    pod = make_pod(containers=[container_manifest("c0", units)])
    written = GPUSHARE.annotations(pod, GPUSHARE.demand(pod), placement, cards, 1_700_000_000_123_456_789)
    assert written == {
        "ALIYUN_COM_GPU_MEM_IDX": str(index),
        "ALIYUN_COM_GPU_MEM_DEV": dev,
        "ALIYUN_COM_GPU_MEM_POD": str(units),
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1700000000123456789",
    }


def test_the_marks_of_the_hand_over_are_those_of_the_original() -> None:
    """As the original gpushare does it."""
    assert GPUSHARE.hand_over_marks(make_pod(), 17) == {ASSIGNED: "true", ASSUME_TIME: "17"}
    assert GPUSHARE.handed_over(make_pod(metadata={"annotations": {ASSIGNED: "true"}}))
    assert not GPUSHARE.handed_over(make_pod(metadata={"annotations": {ASSIGNED: "false"}}))


def test_a_container_finds_the_original_s_environment_with_the_card_s_uuid() -> None:
    """As the original gpushare does it; the uuid is what the NVIDIA runtime cannot misread."""
    cards = make_cards()
    pod = make_pod(containers=[container_manifest("c0", 3), container_manifest("c1", 4)])
    placement = make_placement(cards, 1, c0=3072, c1=4096)
    assert GPUSHARE.environment(pod, GPUSHARE.demand(pod), "c1", placement, cards) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-n1-1",
        IDX: "1",
        POD: "7",
        CONTAINER: "4",
        DEV: "15",
    }


# -- the node


def test_ids_are_those_of_the_original() -> None:
    cards = make_cards(mib=(2048, 3071))
    assert GPUSHARE.device_ids(GPU_MEM, cards) == [
        ("GPU-n1-0-_-0", "GPU-n1-0"),
        ("GPU-n1-0-_-1", "GPU-n1-0"),
        ("GPU-n1-1-_-0", "GPU-n1-1"),
        ("GPU-n1-1-_-1", "GPU-n1-1"),
    ]


UNITS = {16276: 15, 32510: 31, 24187: 23, 22919: 22, 12196: 11, 11178: 10, 11019: 10, 1023: 0}


@pytest.mark.parametrize(("mib", "units"), UNITS.items(), ids=[f"{mib} MiB" for mib in UNITS])
def test_a_card_sells_whole_units(mib: int, units: int) -> None:
    """As the original gpushare does it."""
    assert len(GPUSHARE.device_ids(GPU_MEM, make_cards(mib=(mib,)))) == units


def test_the_number_of_cards_has_an_id_per_card() -> None:
    expected = [("GPU-n1-0", "GPU-n1-0"), ("GPU-n1-1", "GPU-n1-1")]
    assert GPUSHARE.device_ids(GPU_COUNT, make_cards()) == expected


# -- reading back


@pytest.mark.parametrize(
    ("index", "uuid"),
    [
        pytest.param("1", "GPU-n1-1", id="an index of the node"),
        pytest.param("2", None, id="one that it has not"),
        pytest.param("-1", None, id="the mark of failure"),
        pytest.param("", None, id="nothing"),
        pytest.param("one", None, id="a word"),
        pytest.param("\u0661", None, id="an Arabic digit"),
        pytest.param("1" * 5000, None, id="five thousand digits"),
    ],
)
def test_an_original_s_annotation_is_read_back(index: str, uuid: str | None) -> None:
    cards = make_cards()
    pod = make_pod(metadata={"annotations": {IDX: index}}, node="n1")
    if uuid is None:
        with pytest.raises(BadRecord, match=IDX):
            GPUSHARE.read_back(pod, cards)
    else:
        placement = GPUSHARE.read_back(pod, cards)
        assert placement is not None
        assert [(part.uuid, part.mib) for part in placement.slices()] == [(uuid, 3072)]


ORIGINAL = {1: {GPU_MEM: "15", GPU_COUNT: "1"}, 2: {GPU_MEM: "30", GPU_COUNT: "2"}}
"""Nodes of the original's plugin, by their number of cards."""
RUNS = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}


@pytest.mark.parametrize(
    ("limits", "cards", "annotations", "held"),
    [
        pytest.param({GPU_COUNT: "1"}, 2, {}, None, id="a number of cards"),
        pytest.param({GPU_COUNT: "1"}, 1, {}, None, id="the number of the only one"),
        pytest.param({GPU_MEM: "3"}, 2, {}, None, id="memory"),
        pytest.param({GPU_MEM: "3"}, 1, {}, {"n1/0": 3072}, id="memory of the only one, which the plugin gives"),
        pytest.param({GPU_MEM: "3"}, 2, {IDX: "1"}, {"n1/1": 3072}, id="what its scheduler placed"),
        pytest.param(
            {GPU_MEM: "3"}, 2, {ASSIGNED: "true"}, {"n1/0": 3072, "n1/1": 3072}, id="placed, with its card wiped off"
        ),
    ],
)
def test_a_running_pod_that_nobody_placed_has_on_an_original_s_node_what_its_plug_in_gave_it(
    limits: dict[str, str], cards: int, annotations: dict[str, str], held: dict[str, int] | None
) -> None:
    node = cards_of(make_node("n1", capacity=ORIGINAL[cards]), DIALECTS)
    containers = [container_manifest(gpu_mem=None, resources={"limits": limits})]
    pod = make_pod(containers=containers, metadata={"annotations": annotations}, node="n1", status=RUNS)
    if held is None:
        with pytest.raises(NotPlaced):
            holding_of(pod, node, DIALECTS)
    else:
        holding = holding_of(pod, node, DIALECTS)
        assert holding is not None
        assert {uuid: charge.mib for uuid, charge in holding.charges.items()} == held


@pytest.mark.parametrize("limits", [{GPU_COUNT: "1"}, {GPU_MEM: "3"}], ids=["a number of cards", "memory"])
def test_on_a_node_of_our_agent_it_has_a_card_that_nobody_knows(limits: dict[str, str]) -> None:
    """Without a placement it would not run there: somebody has wiped its record."""
    node = cards_of(make_node("n1", make_cards()), DIALECTS)
    containers = [container_manifest(gpu_mem=None, resources={"limits": limits})]
    holding = holding_of(make_pod(containers=containers, node="n1", status=RUNS), node, DIALECTS)
    assert holding is not None
    assert holding.charges.keys() == node.by_uuid.keys()


def test_what_is_written_is_read_back() -> None:
    cards = make_cards()
    containers = [container_manifest("a", 2), container_manifest("b", 3)]
    pod = make_pod(containers=containers)
    placement = make_placement(cards, 1, a=2048, b=3072)
    written = dict(GPUSHARE.annotations(pod, GPUSHARE.demand(pod), placement, cards, 0))
    bound = make_pod(containers=containers, node="n1", metadata={"annotations": written})
    assert GPUSHARE.read_back(bound, cards) == placement


# -- words


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_words_without_numbers(reason: Reason) -> None:
    assert not any(letter.isdigit() for letter in GPUSHARE.words(reason))


def test_the_sample_pod_is_one_that_the_dialect_takes() -> None:
    demand = demand_of(msgspec.convert(GPUSHARE.sample_pod(), Pod), DIALECTS)
    assert demand is not None
    assert [container.part.memory for container in demand.request.containers] == [Memory(3, Unit.NODE)]
