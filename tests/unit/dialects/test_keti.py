"""KETI's words: MPS slots on so many cards, memory by annotation, the list of uuids."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.dialects import cards_of, demand_of, holding_of, standard_dialects
from aliquot.dialects.keti import LIMIT, PINNED_LIMIT, REQUEST, UUID, Keti
from aliquot.errors import BadDemand, BadRecord
from aliquot.model import (
    Charge,
    ContainerRequest,
    Life,
    Memory,
    NodeGpus,
    Part,
    Placement,
    Pod,
    Reason,
    Unit,
    charges,
    cut,
)
from tests.factories import container_manifest, make_gpu, make_node, make_pod

DIALECTS = standard_dialects()
KETI = Keti()
GPU = "keti.com/mpsgpu"
SLOT = Part(slots=1, memory=Memory(1, Unit.SLOT))


def asking(name: str, count: Any, resource: str = GPU, **fields: Any) -> dict[str, Any]:
    return container_manifest(name, None, resources={"limits": {} if count is None else {resource: count}}, **fields)


def pod_of(*counts: Any, annotations: Mapping[str, str] | None = None, inits: Sequence[Any] = (), **fields: Any) -> Pod:
    """Containers c0, c1, … and init containers i0, i1, …; None asks for nothing."""
    return make_pod(
        containers=[asking(f"c{place}", count) for place, count in enumerate(counts)],
        initContainers=[asking(f"i{place}", count) for place, count in enumerate(inits)],
        metadata={"annotations": dict(annotations or {})},
        **fields,
    )


def mps_cards(count: int = 4, slots: int = 10, mib: int = 10240) -> NodeGpus:
    return NodeGpus("n1", tuple(make_gpu(index, mib=mib, slots=slots) for index in range(count)), 1)


# -- demand


def test_each_container_gets_a_slot_of_its_own_cards() -> None:
    pod = make_pod(
        containers=[asking("a", 2), asking("plain", None), asking("zero", 0), asking("b", "1")],
        initContainers=[asking("i", 1), asking("s", 1, restartPolicy="Always")],
    )
    assert KETI.demand(pod).containers == (
        ContainerRequest("i", SLOT, Life.INIT),
        ContainerRequest("s", SLOT, Life.SIDECAR),
        ContainerRequest("a", Part(2, slots=1, memory=Memory(1, Unit.SLOT))),
        ContainerRequest("b", SLOT),
    )


SIZES: list[Any] = [
    pytest.param({}, Memory(1, Unit.SLOT), None, Charge(10, 1024, slots=1), id="neither: what a slot has"),
    pytest.param({REQUEST: "2Gi"}, Memory(2048), None, Charge(10, 2048, slots=1), id="a request"),
    pytest.param({LIMIT: "2Gi"}, Memory(2048), Memory(2048), Charge(10, 2048, slots=1), id="a limit is a request too"),
    pytest.param({REQUEST: "1Gi", LIMIT: "4G"}, Memory(1024), Memory(3815), Charge(10, 1024, slots=1), id="a burst"),
    pytest.param({REQUEST: "1500Ki"}, Memory(2), None, Charge(10, 2, slots=1), id="rounded up to MiB"),
    pytest.param({REQUEST: "1e9"}, Memory(954), None, Charge(10, 954, slots=1), id="plain bytes"),
]


@pytest.mark.parametrize(("annotations", "memory", "limit", "charge"), SIZES)
def test_memory_per_card_is_what_the_annotations_say(
    annotations: dict[str, str], memory: Memory, limit: Memory | None, charge: Charge
) -> None:
    part = KETI.demand(pod_of(1, annotations=annotations)).containers[0].part
    assert (part.memory, part.memory_limit) == (memory, limit)
    assert part.on(mps_cards().gpus[0], 1) == charge


BAD: list[Any] = [
    pytest.param(0, {}, f"no container of the pod asks for more than 0 of {GPU}", id="nothing"),
    pytest.param("x", {}, f"container c0, limits, {GPU}: 'x' is not a Kubernetes quantity", id="a word"),
    pytest.param("-1", {}, f"container c0, limits, {GPU}: '-1' is negative", id="less than nothing"),
    pytest.param(
        "1Gi", {}, f"{GPU}: 1073741824 is more than any node has; it counts cards: write 1", id="more than any node has"
    ),
    pytest.param(1, {REQUEST: "much"}, f"annotation {REQUEST}: 'much' is not a Kubernetes quantity", id="no quantity"),
    pytest.param(1, {REQUEST: ""}, f"annotation {REQUEST}: '' is not a Kubernetes quantity", id="empty"),
    pytest.param(1, {LIMIT: "-4Gi"}, f"annotation {LIMIT}: -4Gi is negative", id="a negative size"),
    pytest.param(1, {LIMIT: "4000"}, f"annotation {LIMIT}: 4000 is less than 1Mi; .* write 4Gi", id="MiB meant"),
    pytest.param(1, {LIMIT: "1E"}, f"annotation {LIMIT}: 1E is more than any GPU has", id="an absurd size"),
    pytest.param(1, {REQUEST: "2Gi", LIMIT: "1Gi"}, f"{LIMIT}: 1Gi is below {REQUEST}, 2Gi", id="a limit below"),
]


@pytest.mark.parametrize(("count", "annotations", "text"), BAD)
def test_a_bad_demand_is_refused_with_the_field_and_what_to_write_instead(
    count: Any, annotations: dict[str, str], text: str
) -> None:
    with pytest.raises(BadDemand, match=text):
        demand_of(pod_of(count, annotations=annotations), DIALECTS)


@pytest.mark.parametrize("text", ["much", "-4Gi", "1E"])
def test_a_running_pod_of_the_original_whose_size_cannot_be_read_holds_a_slot(text: str) -> None:
    """The original checks neither annotation."""
    assert KETI.held(pod_of(1, annotations={REQUEST: text})).containers == (ContainerRequest("c0", SLOT),)


def test_the_size_may_be_rewritten_while_the_pod_runs() -> None:
    assert KETI.demand_can_change(pod_of(1))


def test_the_prefix_can_be_another() -> None:
    own = Keti("mps.example")
    pod = make_pod(containers=[asking("a", 2, "mps.example/mpsgpu")])
    assert own.speaks(pod)
    assert not KETI.speaks(pod)
    assert own.demand(pod).containers[0].part.cards == 2
    assert [resource.name for resource in own.resources] == ["mps.example/mpsgpu"]


# -- the node


def test_a_node_without_inventory_has_no_cards_that_can_be_named() -> None:
    """The record is a list of uuids, which its status does not tell."""
    assert KETI.capacity(make_node("old", capacity={GPU: "20"})) is None
    assert cards_of(make_node("old", capacity={GPU: "20"}), DIALECTS).gpus == ()


@pytest.mark.parametrize(
    ("slots", "ids"), [pytest.param(0, 10, id="ten unless the card says"), pytest.param(3, 3, id="3")]
)
def test_ids_are_those_of_the_original(slots: int, ids: int) -> None:
    """As the original GPU-Device-Plugin does it."""
    offered = KETI.device_ids(GPU, mps_cards(2, slots))
    assert offered[:ids] == [(f"GPU-n1-0-{slot}", "GPU-n1-0") for slot in range(ids)]
    assert len(offered) == 2 * ids


def test_the_socket_is_the_original_s() -> None:
    assert KETI.resources[0].socket == "nvidia-keti-mpsgpu.sock"


@pytest.mark.parametrize(
    ("annotations", "pinned"),
    [
        pytest.param({}, {}, id="no limit, none is set, as in the original"),
        pytest.param({REQUEST: "1Gi"}, {}, id="a request is not a limit"),
        pytest.param({LIMIT: "2Gi"}, {PINNED_LIMIT: "0=2048M,1=2048M"}, id="a limit for each card that it sees"),
    ],
)
def test_a_container_finds_its_cards_and_its_limit(annotations: dict[str, str], pinned: dict[str, str]) -> None:
    cards = mps_cards()
    pod = pod_of(2, 1, annotations=annotations)
    request = KETI.demand(pod)
    found = KETI.environment(pod, request, "c0", placed(request.containers, [[1, 3], [0]], cards), cards)
    assert found == {"NVIDIA_VISIBLE_DEVICES": "GPU-n1-1,GPU-n1-3", **pinned}


# -- records


def placed(containers: Sequence[ContainerRequest], indexes: Sequence[Sequence[int]], cards: NodeGpus) -> Placement:
    slices = {
        container.name: tuple(cut(container.part, cards.by_index[index], 1) for index in chosen)
        for container, chosen in zip(containers, indexes, strict=True)
    }
    return Placement(cards.node, "keti", slices)


def test_the_annotation_lists_the_cards_of_one_container_after_the_other() -> None:
    cards, pod = mps_cards(), pod_of(2, None, 1)
    request = KETI.demand(pod)
    placement = placed(request.containers, [[2, 0], [2]], cards)
    written = KETI.annotations(pod, request, placement, cards, 17)
    assert written == {"UUID": "GPU-n1-2,GPU-n1-0,GPU-n1-2"}
    assert KETI.labels(pod, request, placement, cards) == {}


READ: list[Any] = [
    pytest.param("GPU-n1-1", [1], [], {"c0": ["GPU-n1-1"]}, id="one card"),
    pytest.param("GPU-n1-1,GPU-n1-0", [2], [], {"c0": ["GPU-n1-1", "GPU-n1-0"]}, id="two cards"),
    pytest.param("GPU-n1-1, GPU-n1-0", [2], [], {"c0": ["GPU-n1-1", "GPU-n1-0"]}, id="a space"),
    pytest.param("GPU-n1-1,GPU-n1-0", [1, 1], [], {"c0": ["GPU-n1-1"], "c1": ["GPU-n1-0"]}, id="two containers"),
    pytest.param("GPU-n1-1,GPU-n1-0", [1], [1], {"i0": ["GPU-n1-1"], "c0": ["GPU-n1-0"]}, id="an init container"),
    pytest.param("GPU-n1-1", [1], [1], {"i0": ["GPU-n1-1"], "c0": ["GPU-n1-1"]}, id="one that the original forgot"),
    pytest.param("GPU-n1-1,GPU-n1-0", [1], [], f"{UUID} names 2 cards, but the pod asks for 1", id="too many"),
    pytest.param("GPU-n1-1", [2], [], f"{UUID} names 1 cards, but the pod asks for 2", id="too few"),
    pytest.param("", [1], [], f"{UUID} names 0 cards, but the pod asks for 1", id="empty"),
    pytest.param("GPU-n1-0,, GPU-n1-1,", [2], [], {"c0": ["GPU-n1-0", "GPU-n1-1"]}, id="empty items"),
    pytest.param("GPU-gone", [1], [], f"{UUID} names card 'GPU-gone', which node n1 does not have", id="a card gone"),
]


@pytest.mark.parametrize(("text", "counts", "inits", "expected"), READ)
def test_an_original_s_annotation_is_read_back(
    text: str, counts: list[int], inits: list[int], expected: dict[str, list[str]] | str
) -> None:
    pod = pod_of(*counts, inits=inits, annotations={UUID: text}, node="n1")
    if isinstance(expected, str):
        with pytest.raises(BadRecord, match=expected):
            KETI.read_back(pod, mps_cards())
        return
    placement = KETI.read_back(pod, mps_cards())
    assert placement is not None
    assert {name: [part.uuid for part in parts] for name, parts in placement.containers.items()} == expected


def test_a_pod_without_the_annotation_has_no_record() -> None:
    assert KETI.read_back(pod_of(1, node="n1"), mps_cards()) is None


@st.composite
def placed_pods(draw: st.DrawFn) -> tuple[Pod, Placement, NodeGpus]:
    cards = mps_cards(draw(st.integers(1, 4)), draw(st.integers(1, 48)), draw(st.integers(1024, 81920)))
    counts = st.one_of(st.none(), st.integers(1, len(cards.gpus)))
    mains, inits = (
        [draw(st.integers(1, 4)) % len(cards.gpus) + 1, *draw(st.lists(counts, max_size=3))],
        draw(st.lists(counts, max_size=2)),
    )
    sizes = draw(st.sampled_from([{}, {REQUEST: "100Mi"}, {LIMIT: "1Gi"}, {REQUEST: "100Mi", LIMIT: "1Gi"}]))
    pod = pod_of(*mains, inits=inits, annotations=sizes, node="n1")
    containers = KETI.demand(pod).containers
    indexes = [draw(st.permutations(range(len(cards.gpus))))[: c.part.cards] for c in containers]
    return pod, placed(containers, indexes, cards), cards


@given(placed_pods())
def test_what_is_written_is_read_back(case: tuple[Pod, Placement, NodeGpus]) -> None:
    pod, placement, cards = case
    request = KETI.demand(pod)
    written = {**pod.metadata.annotations, **KETI.annotations(pod, request, placement, cards, 0)}
    bound = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=written))
    assert KETI.read_back(bound, cards) == placement
    holding = holding_of(bound, cards, DIALECTS)
    assert holding is not None
    assert holding.charges == charges(placement, request)


# -- words


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_words_without_numbers(reason: Reason) -> None:
    assert not any(letter.isdigit() for letter in KETI.words(reason))


def test_the_sample_pod_is_one_that_the_dialect_takes() -> None:
    demand = demand_of(msgspec.convert(KETI.sample_pod(), Pod), DIALECTS)
    assert demand is not None
    assert (demand.dialect.name, demand.request.pod) == ("keti", "userpod/nbody-benchmark-mps-test")
    assert demand.request.containers == (ContainerRequest("nbody1", SLOT),)
