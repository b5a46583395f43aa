"""tencent's words: what it asks for, what it writes, what it reads back."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.dialects import demand_of, holding_of, standard_dialects
from aliquot.dialects.tencent import Tencent
from aliquot.errors import BadDemand, BadRecord
from aliquot.model import Charge, ContainerRequest, Life, Memory, NodeGpus, Part, Placement, Pod, Reason, charges, cut
from tests.factories import container_manifest, make_cards, make_gpu, make_node, make_pod

TENCENT = Tencent()
CORE = "tencent.com/vcuda-core"
MEMORY = "tencent.com/vcuda-memory"
LIMIT = "tencent.com/vcuda-core-limit"
ASSIGNED = "tencent.com/gpu-assigned"
T4_BLOCKS = 60


def index_key(place: int) -> str:
    return f"tencent.com/predicate-gpu-idx-{place}"


def asking(name: str, cores: Any = None, blocks: Any = None, **fields: Any) -> dict[str, Any]:
    """A container that asks for cores and blocks of memory; None names neither."""
    limits = {key: str(value) for key, value in ((CORE, cores), (MEMORY, blocks)) if value is not None}
    return container_manifest(name, None, resources={"limits": limits}, **fields)


def pod_of(*containers: dict[str, Any], annotations: Mapping[str, str] | None = None, **fields: Any) -> Pod:
    return make_pod(containers=containers, metadata={"annotations": dict(annotations or {})}, **fields)


# -- demand


def test_a_part_goes_to_one_card_with_its_cores_and_blocks_of_256_mib() -> None:
    pod = pod_of(asking("plain"), asking("a", 50, 30), asking("zero", 0, 0), asking("b", "1500m", "1k"), priority=7)
    request = TENCENT.demand(pod)
    assert (request.uid, request.pod, request.dialect, request.priority) == (
        pod.metadata.uid,
        "default/p",
        "tencent",
        7,
    )
    assert request.containers == (
        ContainerRequest("a", Part(cores=50, memory=Memory(7680))),
        ContainerRequest("b", Part(cores=2, memory=Memory(256_000))),
    )
    assert not request.together


@pytest.mark.parametrize(("cores", "cards"), [("100", 1), ("200", 2), ("1k", 10)])
@pytest.mark.parametrize("blocks", [None, 0, 3])
def test_from_100_cores_on_a_container_gets_whole_cards_whatever_memory_it_names(
    cores: str, cards: int, blocks: int | None
) -> None:
    (container,) = TENCENT.demand(pod_of(asking("main", cores, blocks))).containers
    assert container.part == Part(cards=cards, whole=True)


BAD: list[Any] = [
    pytest.param([asking("main", 0, 0)], f"no container of the pod asks for more than 0 of {CORE}", id="nothing"),
    pytest.param([asking("a", 50, 4), asking("b", 50)], f"container b, limits, {CORE}: 50 .* {MEMORY}", id="no memory"),
    pytest.param([asking("a", blocks=4)], f"container a, limits, {MEMORY}: .* write {CORE}", id="memory alone"),
    pytest.param([asking("a", 60), asking("b", 60)], f"container a, limits, {CORE}: 60", id="120 in all, no memory"),
    pytest.param(
        [asking("a", 150, 1)], f"container a, limits, {CORE}: 150 .* write 100 or 200", id="a card and a half"
    ),
    pytest.param([asking("a", "1E")], f"container a, limits, {CORE}: .* more than any node has", id="an exa of cores"),
    pytest.param([asking("a", 50, "8Gi")], f"container a, limits, {MEMORY}: .* write 32, not 8Gi", id="bytes"),
    pytest.param([asking("a", "x", 1)], f"container a, limits, {CORE}: 'x' is not a Kubernetes quantity", id="a word"),
    pytest.param([asking("a", 50, "-1")], f"container a, limits, {MEMORY}: '-1' is negative", id="less than nothing"),
]


@pytest.mark.parametrize(("containers", "text"), BAD)
def test_a_bad_demand_is_refused_with_the_field_and_what_to_write_instead(
    containers: list[dict[str, Any]], text: str
) -> None:
    with pytest.raises(BadDemand, match=text):
        TENCENT.demand(pod_of(*containers))


@pytest.mark.parametrize("policy", [{}, {"restartPolicy": "Always"}], ids=["init", "sidecar"])
def test_an_init_container_that_asks_is_refused(policy: dict[str, str]) -> None:
    pod = pod_of(asking("a", 50, 4), initContainers=[asking("first", 50, 4, **policy)])
    with pytest.raises(BadDemand, match=f"init container first, limits, {CORE}: only spec.containers"):
        TENCENT.demand(pod)


def test_an_init_container_that_asks_for_nothing_is_none_of_ours() -> None:
    assert TENCENT.demand(pod_of(asking("a", 50, 4), initContainers=[asking("first", 0)])).containers


def test_the_core_limit_lets_parts_burst_and_costs_nothing() -> None:
    pod = pod_of(asking("a", 50, 4), asking("b", 100), annotations={LIMIT: "80"})
    part, whole = (container.part for container in TENCENT.demand(pod).containers)
    assert (part.cores, part.cores_limit, whole.cores_limit) == (50, 80, None)
    assert part.on(make_gpu(), 1) == replace(part, cores_limit=None).on(make_gpu(), 1)


@pytest.mark.parametrize("text", ["0", "101", "-5", "", "fifty", "50.5", "\u0665", "9" * 5000])
def test_a_core_limit_must_be_a_percentage(text: str) -> None:
    with pytest.raises(BadDemand, match=f"annotation {LIMIT}: .* is not an integer from 1 to 100"):
        TENCENT.demand(pod_of(asking("a", 50, 4), annotations={LIMIT: text}))


def test_a_core_limit_below_the_cores_is_refused() -> None:
    with pytest.raises(BadDemand, match=f"annotation {LIMIT}: 30 is below the 50 that container a .* write 50 to 100"):
        TENCENT.demand(pod_of(asking("a", 50, 4), annotations={LIMIT: "30"}))


def test_annotations_of_an_earlier_placement_do_not_stop_an_unbound_pod() -> None:
    """The original answers "had been predicated!" and the pod waits for ever."""
    old = {index_key(0): "1", "tencent.com/predicate-time": "1", ASSIGNED: "false"}
    assert TENCENT.demand(pod_of(asking("a", 50, 4), annotations=old, uid="u")) == TENCENT.demand(
        pod_of(asking("a", 50, 4), uid="u")
    )


# -- capacity of nodes without our agent

CAPACITY: list[Any] = [
    pytest.param({CORE: "200", MEMORY: "8"}, [1024, 1024], id="two cards of 4 blocks"),
    pytest.param({CORE: "1k", MEMORY: "600"}, [15360] * 10, id="a canonical quantity"),
    pytest.param({CORE: "200", MEMORY: "9"}, [1024, 1024], id="a block that does not divide is lost"),
    pytest.param({CORE: "199", MEMORY: "8"}, [2048], id="half a card is none"),
    pytest.param({CORE: "99", MEMORY: "8"}, None, id="less than a card"),
    pytest.param({CORE: "200", MEMORY: "1"}, None, id="no memory for a card"),
    pytest.param({CORE: "200"}, None, id="no memory"),
    pytest.param({MEMORY: "8"}, None, id="no cores"),
    pytest.param({CORE: "x", MEMORY: "8"}, None, id="no quantity"),
    pytest.param({}, None, id="a node without GPUs"),
]


@pytest.mark.parametrize(("capacity", "mib"), CAPACITY)
def test_a_node_without_inventory_is_read_by_its_status(capacity: dict[str, str], mib: list[int] | None) -> None:
    cards = TENCENT.capacity(make_node("old", capacity=capacity))
    assert (cards and [gpu.mib for gpu in cards.gpus]) == mib


@pytest.mark.parametrize("label", ["gaia.tencent.com/gpu-model", "tkestack.io/gpu-model"])
def test_the_model_of_its_cards_is_what_its_label_says(label: str) -> None:
    node = make_node("old", capacity={CORE: "200", MEMORY: "8"})
    labelled = msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels={label: "M40"}))
    cards = TENCENT.capacity(labelled)
    assert cards is not None
    assert {gpu.model for gpu in cards.gpus} == {"M40"}


# -- what is written at bind and at the hand-over


def placed(request_of: Pod, cards: NodeGpus, **indexes: list[int]) -> Placement:
    parts = {container.name: container.part for container in TENCENT.demand(request_of).containers}
    slices = {
        name: tuple(cut(parts[name], cards.by_index[index], cards.unit_mib) for index in own)
        for name, own in indexes.items()
    }
    return Placement(cards.node, "tencent", slices)


def test_the_annotations_are_those_of_the_original_with_minors_by_place_of_the_container() -> None:
    """As gpu-admission writes them; the numbers as gpu-manager reads and corrects them."""
    cards = make_cards()
    pod = pod_of(asking("plain"), asking("part", 50, 30), asking("whole", 200))
    placement = placed(pod, cards, part=[1], whole=[1, 0])
    assert TENCENT.annotations(pod, TENCENT.demand(pod), placement, cards, 1_700_000_000_123_456_789) == {
        "tencent.com/predicate-gpu-idx-1": "4",
        "tencent.com/predicate-gpu-idx-2": "3,4",
        "tencent.com/predicate-node": "n1",
        "tencent.com/predicate-time": "1700000000123456789",
        "tencent.com/gpu-assigned": "false",
    }
    assert TENCENT.labels(pod, TENCENT.demand(pod), placement, cards) == {}


def test_the_mark_of_the_hand_over_is_that_of_the_original() -> None:
    assert TENCENT.hand_over_marks(pod_of(asking("a", 50, 4)), 17) == {ASSIGNED: "true"}
    assert TENCENT.handed_over(pod_of(asking("a", 50, 4), annotations={ASSIGNED: "true"}))
    assert not TENCENT.handed_over(pod_of(asking("a", 50, 4), annotations={ASSIGNED: "false"}))


@pytest.mark.parametrize(("cores", "blocks"), [(0, None), (None, 0), (0, 0)], ids=["no cores", "no memory", "neither"])
def test_a_pod_that_asks_for_nothing_is_one_without_gpu(cores: int | None, blocks: int | None) -> None:
    assert demand_of(pod_of(asking("a", cores, blocks)), standard_dialects()) is None


def test_every_key_that_is_written_is_guarded() -> None:
    cards = make_cards()
    pod = pod_of(asking("a", 50, 4))
    written = {
        *TENCENT.annotations(pod, TENCENT.demand(pod), placed(pod, cards, a=[0]), cards, 0),
        *TENCENT.hand_over_marks(pod, 0),
    }
    assert all(any(key.startswith(own.rstrip("*")) for own in TENCENT.placement_keys) for key in written)
    assert LIMIT not in TENCENT.placement_keys


def test_a_container_finds_the_uuids_and_the_memory_of_its_cards() -> None:
    cards = make_cards()
    pod = pod_of(asking("a", 200))
    found = TENCENT.environment(pod, TENCENT.demand(pod), "a", placed(pod, cards, a=[0, 1]), cards)
    assert found == {"NVIDIA_VISIBLE_DEVICES": "GPU-n1-0,GPU-n1-1", "ALIQUOT_MEMORY_MIB": "15360,15360"}


# -- the node


def test_ids_and_sockets_are_those_of_the_original() -> None:
    cards = make_cards(mib=(600, 700))
    assert [(resource.name, resource.socket) for resource in TENCENT.resources] == [
        (CORE, "vcore.sock"),
        (MEMORY, "vmemory.sock"),
    ]
    cores = TENCENT.device_ids(CORE, cards)
    assert len(cores) == 200
    assert (cores[0], cores[199]) == ((f"{CORE}-0", "GPU-n1-0"), (f"{CORE}-199", "GPU-n1-1"))
    assert TENCENT.device_ids(MEMORY, cards) == [
        (f"{MEMORY}-268435456-0", "GPU-n1-0"),
        (f"{MEMORY}-268435456-1", "GPU-n1-0"),
        (f"{MEMORY}-268435456-2", "GPU-n1-0"),
        (f"{MEMORY}-268435456-3", "GPU-n1-1"),
        (f"{MEMORY}-268435456-4", "GPU-n1-1"),
    ]


def test_a_node_without_cards_offers_no_ids() -> None:
    assert TENCENT.device_ids(MEMORY, make_cards(mib=())) == TENCENT.device_ids(CORE, make_cards(mib=())) == []


# -- reading back


def read_back(pod: Pod, cards: NodeGpus) -> dict[str, list[tuple[str, int, int]]]:
    """(uuid, cores, MiB) by container."""
    placement = TENCENT.read_back(pod, cards)
    assert placement is not None
    return {name: [(part.uuid, part.cores, part.mib) for part in parts] for name, parts in placement.containers.items()}


def test_the_numbers_of_the_original_are_read_as_minors() -> None:
    written = {index_key(1): "4", index_key(2): "4,3", ASSIGNED: "true"}
    pod = pod_of(asking("plain"), asking("part", 50, 30), asking("whole", 200, 10), annotations=written, node="n1")
    assert read_back(pod, make_cards()) == {
        "part": [("GPU-n1-1", 50, 7680)],
        "whole": [("GPU-n1-1", 100, 15360), ("GPU-n1-0", 100, 15360)],
    }


def test_what_the_original_dropped_is_not_held() -> None:
    pod = pod_of(asking("a", 150, 99), annotations={index_key(0): "3"}, node="n1")
    assert read_back(pod, make_cards()) == {"a": [("GPU-n1-0", 100, 15360)]}


def test_a_container_that_the_original_did_not_count_holds_nothing() -> None:
    pod = pod_of(asking("a", 50), asking("b", 10, 1), asking("c", blocks=3), annotations={index_key(1): "3"})
    assert read_back(pod, make_cards()) == {"b": [("GPU-n1-0", 10, 256)]}


def test_an_absurd_amount_of_memory_stays_countable() -> None:
    (container,) = TENCENT.held(pod_of(asking("a", 50, "8E"))).containers
    assert container.part.memory.amount < 2**40


def test_a_pod_without_the_keys_has_no_placement() -> None:
    assert TENCENT.read_back(pod_of(asking("a", 50, 4), annotations={ASSIGNED: "false"}), make_cards()) is None


def test_a_mig_instance_is_never_meant() -> None:
    cards = make_cards(mib=(100, 100))
    instance = make_gpu(7, uuid="MIG-a", minor=3, parent="GPU-n1-0")
    pod = pod_of(asking("a", 10, 1), annotations={index_key(0): "3"})
    assert read_back(pod, replace(cards, gpus=(instance, *cards.gpus))) == {"a": [("GPU-n1-0", 10, 256)]}


@pytest.mark.parametrize("text", ["", "0", "-3", "3,3", "3, 4", "x", "\u0663", "3" * 5000])
def test_a_number_that_is_no_minor_of_the_node_is_named_with_its_key(text: str) -> None:
    with pytest.raises(BadRecord, match=index_key(0)):
        TENCENT.read_back(pod_of(asking("a", 200), annotations={index_key(0): text}), make_cards())


def test_a_key_that_is_missing_beside_others_is_named() -> None:
    with pytest.raises(BadRecord, match=f"{index_key(1)} is missing, but container b asks"):
        TENCENT.read_back(pod_of(asking("a", 10, 1), asking("b", 10, 1), annotations={index_key(0): "3"}), make_cards())


def test_a_pod_that_the_original_placed_is_adopted() -> None:
    pod = pod_of(asking("a", 150, 7), asking("b", 30, 4), annotations={index_key(0): "3", index_key(1): "4"}, node="n1")
    holding = holding_of(pod, make_cards(), standard_dialects())
    assert holding is not None
    assert holding.charges == {
        "GPU-n1-0": Charge(100, 15360, shares=1),
        "GPU-n1-1": Charge(30, 1024, shares=1),
    }


Choice = tuple[int, int, list[int]]
"""Cores, blocks and the indexes of the cards of one container; no card for one without GPU."""


@st.composite
def choices(draw: st.DrawFn, cards: int) -> Choice:
    count = draw(st.integers(0, cards))
    indexes = draw(st.permutations(range(cards)))[:count]
    if count == 0:
        return 0, 0, []
    if count == 1 and draw(st.booleans()):
        return draw(st.integers(1, 99)), draw(st.integers(1, T4_BLOCKS)), indexes
    return 100 * count, draw(st.integers(0, T4_BLOCKS)), indexes


@given(st.lists(choices(4), min_size=1, max_size=5).filter(lambda all_: any(indexes for *_, indexes in all_)))
def test_what_is_written_is_read_back(asked: list[Choice]) -> None:
    cards = make_cards(mib=(15360, 16276, 40960, 81920))
    names = [f"c{place}" for place in range(len(asked))]
    containers = [asking(name, cores, blocks) for name, (cores, blocks, _) in zip(names, asked, strict=True)]
    pod = pod_of(*containers)
    request = TENCENT.demand(pod)
    placement = placed(pod, cards, **{name: own for name, (*_, own) in zip(names, asked, strict=True) if own})
    written = TENCENT.annotations(pod, request, placement, cards, 0)
    again = TENCENT.read_back(pod_of(*containers, annotations=written, node="n1"), cards)
    assert again is not None
    assert {name: set(parts) for name, parts in again.containers.items()} == {
        name: set(parts) for name, parts in placement.containers.items()
    }
    assert charges(again, TENCENT.held(pod)) == charges(placement, request)
    assert {container.life for container in request.containers} == {Life.MAIN}


@given(st.text(max_size=8), st.text(max_size=8), st.text(max_size=8), st.text(max_size=8))
def test_whatever_a_pod_says_is_read_or_refused(cores: str, blocks: str, burst: str, numbers: str) -> None:
    pod = pod_of(asking("a", cores, blocks), annotations={LIMIT: burst, index_key(0): numbers})
    with suppress(BadDemand):
        TENCENT.demand(pod)
    with suppress(BadDemand, BadRecord):
        TENCENT.read_back(pod, make_cards())


# -- names


def test_another_prefix_names_everything() -> None:
    other = Tencent("example.com")
    limits = {"limits": {"example.com/vcuda-core": "50", "example.com/vcuda-memory": "4"}}
    pod = make_pod(
        containers=[container_manifest("a", None, resources=limits)],
        metadata={"annotations": {"example.com/vcuda-core-limit": "60"}},
    )
    assert other.speaks(pod)
    assert not TENCENT.speaks(pod)
    request = other.demand(pod)
    assert request.containers[0].part.cores_limit == 60
    cards = make_cards()
    placement = Placement("n1", "tencent", {"a": (cut(request.containers[0].part, cards.gpus[0], 1),)})
    written = [*other.annotations(pod, request, placement, cards, 0), *other.hand_over_marks(pod, 0)]
    names = [*written, *other.placement_keys]
    assert {name.partition("/")[0] for name in names} == {"example.com"}
    assert other.device_ids("example.com/vcuda-memory", cards)[0][0] == "example.com/vcuda-memory-268435456-0"
    assert other.capacity(make_node(capacity={"example.com/vcuda-core": 100, "example.com/vcuda-memory": 4}))


@pytest.mark.parametrize("container", [asking("a", 50, 4), asking("a", blocks=4)], ids=["cores", "memory alone"])
def test_no_other_dialect_speaks_for_its_pods(container: dict[str, Any]) -> None:
    pod = pod_of(container)
    assert [dialect.name for dialect in standard_dialects().values() if dialect.speaks(pod)] == ["tencent"]


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_words_without_numbers(reason: Reason) -> None:
    assert not any(letter.isdigit() for letter in TENCENT.words(reason))


def test_the_original_s_words_stay() -> None:
    assert TENCENT.words(Reason.NO_GPUS) == "no GPU device"
    assert TENCENT.words(Reason.NO_CARD_FITS).startswith("pod does not match with this node")
    assert TENCENT.words(Reason.OVER_QUOTA).startswith("ExceedsGPUQuota")
    assert TENCENT.words(Reason.WRONG_POOL).startswith("ExceedsGPUQuota")


def test_the_sample_pod_is_one_that_the_dialect_takes() -> None:
    (container,) = TENCENT.demand(msgspec.convert(TENCENT.sample_pod(), Pod)).containers
    assert container.part == Part(cores=50, memory=Memory(7680))


def test_the_page_shows_the_example_as_it_is() -> None:
    root = Path(__file__).parents[3]
    example = (root / "examples" / "tencent.yaml").read_text()
    assert example in (root / "docs" / "dialects" / "tencent.md").read_text()
