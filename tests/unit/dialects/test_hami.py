"""HAMi's words: parts of cards by memory and cores, its constraints, its records on pods and nodes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.dialects import cards_of, demand_of, holding_of, standard_dialects
from aliquot.dialects.hami import Hami
from aliquot.errors import BadDemand, BadRecord
from aliquot.model import (
    Charge,
    ContainerRequest,
    Life,
    Link,
    Memory,
    Mode,
    NodeGpus,
    Part,
    Placement,
    Pod,
    Reason,
    Topology,
    Unit,
    charges,
    cut,
)
from tests.factories import T4, container_manifest, make_cards, make_node, make_pod

DIALECTS = standard_dialects()
HAMI = Hami()
GPU, MEM, PERCENT, CORES, PRIORITY = (
    f"nvidia.com/{name}" for name in ("gpu", "gpumem", "gpumem-percentage", "gpucores", "priority")
)
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
ALLOCATED = "hami.io/vgpu-devices-allocated"
REGISTER = "hami.io/node-nvidia-register"


def asking(limits: Mapping[str, Any], name: str = "main", **fields: Any) -> dict[str, Any]:
    return container_manifest(name, None, resources={"limits": dict(limits)}, **fields)


def pod_of(
    *limits: Mapping[str, Any],
    inits: Sequence[Mapping[str, Any]] = (),
    annotations: Mapping[str, str] | None = None,
    **fields: Any,
) -> Pod:
    """Containers c0, c1, … and init containers i0, i1, …"""
    return make_pod(
        containers=[asking(own, f"c{place}") for place, own in enumerate(limits)],
        initContainers=[asking(own, f"i{place}") for place, own in enumerate(inits)],
        metadata={"annotations": dict(annotations or {})},
        **fields,
    )


# -- demand

ALL = Memory(100, Unit.PERCENT)
PARTS: list[Any] = [
    pytest.param({GPU: 1, MEM: 3000}, Part(1, 0, Memory(3000)), id="memory"),
    pytest.param({GPU: 2, MEM: "3000", CORES: "30"}, Part(2, 30, Memory(3000)), id="memory and cores of two cards"),
    pytest.param({GPU: 1, PERCENT: 50}, Part(1, 0, Memory(50, Unit.PERCENT)), id="a percentage"),
    pytest.param({GPU: 1, CORES: 30}, Part(1, 30, ALL), id="cores: all memory"),
    pytest.param({GPU: 1, PERCENT: 100}, Part(1, 100, ALL, whole=True), id="all memory, no word on cores: whole"),
    pytest.param({GPU: 1, PERCENT: 100, CORES: 0}, Part(1, 0, ALL), id="all memory, but no cores"),
    pytest.param({GPU: 1, PERCENT: 100, CORES: 40}, Part(1, 40, ALL), id="all memory, some cores"),
    pytest.param({GPU: 1, MEM: 3000, CORES: 100}, Part(1, 100, Memory(3000), whole=True), id="all cores: alone"),
    pytest.param({GPU: 2, MEM: 0}, Part(2, 100, ALL, whole=True), id="memory 0 is no word on memory"),
    pytest.param({GPU: 1, PERCENT: 0, CORES: 5}, Part(1, 5, ALL), id="0 percent is no word on memory"),
]


@pytest.mark.parametrize(("limits", "part"), PARTS)
def test_a_container_gets_that_part_of_each_card(limits: dict[str, Any], part: Part) -> None:
    demand = demand_of(pod_of(limits), DIALECTS)
    assert demand is not None
    assert demand.dialect.name == "hami"
    assert [container.part for container in demand.request.containers] == [part]


def test_containers_have_parts_of_their_own() -> None:
    pod = make_pod(
        containers=[asking({GPU: 1, MEM: 1}, "a"), asking({}, "plain"), asking({GPU: 1}, "whole")],
        initContainers=[
            asking({}, "first"),
            asking({GPU: 1, MEM: 2}, "i"),
            asking({GPU: 1, MEM: 3}, "s", restartPolicy="Always"),
        ],
    )
    assert HAMI.demand(pod).containers == (
        ContainerRequest("i", Part(memory=Memory(2)), Life.INIT),
        ContainerRequest("s", Part(memory=Memory(3)), Life.SIDECAR),
        ContainerRequest("a", Part(memory=Memory(1))),
        ContainerRequest("whole", Part(1, 100, ALL, whole=True)),
    )


def test_all_cores_of_a_card_are_the_card() -> None:
    part = HAMI.demand(pod_of({GPU: 1, MEM: 3000, CORES: 100})).containers[0].part
    assert part.on(make_cards().gpus[0], 1) == Charge(100, T4, shares=1)


BAD: list[Any] = [
    pytest.param(
        {GPU: 0, MEM: 5},
        f"container c0, limits, {GPU}: 0 cards, but a part of each; write 1",
        id="0 cards",
    ),
    pytest.param({MEM: "x"}, f"container c0, limits, {MEM}: 'x' is not a Kubernetes quantity", id="a word"),
    pytest.param({MEM: "-3"}, f"container c0, limits, {MEM}: '-3' is negative", id="less than nothing"),
    pytest.param({MEM: "3Gi"}, f"{MEM}: 3221225472 is more than any GPU has; .* write 3072, not 3Gi", id="bytes"),
    pytest.param({PERCENT: 101}, f"{PERCENT}: 101 is not a percentage; write 1 to 100", id="101 percent"),
    pytest.param({MEM: 5, PERCENT: 5}, f"{PERCENT}: {MEM} says how much memory; leave one", id="memory said twice"),
    pytest.param({CORES: 200}, f"{CORES}: 200 is more than a card has; .* more cards with {GPU}", id="200 cores"),
    pytest.param({MEM: 5, PRIORITY: 7}, f"{PRIORITY}: write 0 for high or 1 for low", id="a third priority"),
    pytest.param(
        {GPU: "1Gi", MEM: 5},
        f"{GPU}: 1073741824 is more than any node has; it counts cards",
        id="more cards than any node",
    ),
    pytest.param({MEM: 5}, f"{MEM}: kubelet only hands out {GPU}; also write {GPU}: 1", id="no count"),
    pytest.param({CORES: 5}, f"{CORES}: kubelet .* also write {GPU}: 1", id="only cores"),
    pytest.param(
        {MEM: 5, "nvidia.com/mig-1g.5gb": 1}, "mig-1g.5gb: MIG instances are whole", id="a part of an instance"
    ),
]


@pytest.mark.parametrize(("limits", "text"), BAD)
def test_a_bad_demand_is_refused_with_the_field_and_what_to_write_instead(limits: dict[str, Any], text: str) -> None:
    with pytest.raises(BadDemand, match=text):
        demand_of(pod_of(limits), DIALECTS)


def test_none_of_it_is_no_demand_for_a_gpu() -> None:
    pod = pod_of({GPU: "0", MEM: "0"})
    assert demand_of(pod, DIALECTS) is None
    with pytest.raises(BadDemand, match=f"more than 0 of {GPU}"):
        HAMI.demand(pod)


@pytest.mark.parametrize(
    ("limits", "part"),
    [
        pytest.param({GPU: 1, CORES: 200}, Part(1, 100, ALL, whole=True), id="cores are clamped"),
        pytest.param({GPU: 1, PERCENT: 300, CORES: 1}, Part(1, 1, ALL), id="percent are clamped"),
        pytest.param({GPU: 1, MEM: 5, PERCENT: 5}, Part(1, 0, Memory(5)), id="MiB win"),
        pytest.param({MEM: 3000}, Part(1, 0, Memory(3000)), id="no count: one card"),
        pytest.param({CORES: 30}, Part(1, 30, ALL), id="only cores: all memory of one card"),
        pytest.param({GPU: 1, MEM: "9E"}, Part(1, 0, Memory(2**24)), id="absurd memory is bounded"),
    ],
)
def test_a_running_pod_holds_what_hami_made_of_its_demand(limits: dict[str, Any], part: Part) -> None:
    assert [container.part for container in HAMI.held(pod_of(limits)).containers] == [part]


def test_under_a_prefix_of_its_own_whole_cards_are_hami_s_too() -> None:
    own = Hami("vgpu.example")
    whole = pod_of({"vgpu.example/gpu": 2})
    assert own.speaks(whole)
    assert own.demand(whole).containers[0].part == Part(2, 100, ALL, whole=True)
    assert own.demand(pod_of({"vgpu.example/gpu": 1, "vgpu.example/gpumem": 7})).containers[0].part == Part(
        1, 0, Memory(7)
    )
    assert not own.speaks(pod_of({GPU: 1, MEM: 3000}))
    assert [resource.name for resource in own.resources][:2] == ["vgpu.example/gpu", "vgpu.example/gpumem"]


# -- wishes

V100, T, A100 = "Tesla V100-PCIE-32GB", "Tesla T4", "NVIDIA A100-SXM4-40GB"
TYPES: list[Any] = [
    pytest.param({"nvidia.com/use-gputype": "A100,V100"}, {V100, A100}, id="any of a list"),
    pytest.param({"nvidia.com/use-gputype": "v100-pcie"}, {V100}, id="a part of the name, in any case"),
    pytest.param({"nvidia.com/use-gputype": "NVIDIA-Tesla V100"}, {V100}, id="as HAMi registers it"),
    pytest.param({"nvidia.com/use-gputype": "NVIDIA"}, {V100, T, A100}, id="any of NVIDIA's"),
    pytest.param({"nvidia.com/use-gputype": " "}, {V100, T, A100}, id="empty: no wish"),
    pytest.param({"nvidia.com/nouse-gputype": "tesla"}, {A100}, id="none of these"),
    pytest.param({"nvidia.com/use-gputype": "Tesla", "nvidia.com/nouse-gputype": "T4"}, {V100}, id="both"),
]


@pytest.mark.parametrize(("annotations", "models"), TYPES)
def test_types_are_parts_of_the_model_s_name(annotations: dict[str, str], models: set[str]) -> None:
    constraints = HAMI.constraints(pod_of({}, annotations=annotations))
    assert {model for model in (V100, T, A100) if constraints.allows_model(model)} == models


def test_cards_are_wished_and_avoided_by_uuid() -> None:
    constraints = HAMI.constraints(
        pod_of({}, annotations={"nvidia.com/use-gpuuuid": "GPU-a, GPU-b", "nvidia.com/nouse-gpuuuid": "GPU-b"})
    )
    assert [uuid for uuid in ("GPU-a", "GPU-b", "GPU-c") if constraints.allows_uuid(uuid)] == ["GPU-a"]
    assert HAMI.constraints(pod_of({}, annotations={"nvidia.com/use-gpuuuid": ""})).allows_uuid("GPU-c")


WISHES: list[Any] = [
    pytest.param({"nvidia.com/numa-bind": "true"}, (Topology.NUMA, "", ""), id="one NUMA node"),
    pytest.param({"nvidia.com/numa-bind": "F"}, (Topology.ANY, "", ""), id="any NUMA node"),
    pytest.param({"nvidia.com/vgpu-mode": "hami-core"}, (Topology.ANY, "", ""), id="the mode that is served"),
    pytest.param({"nvidia.com/vgpu-mode": "mig,hami-core"}, (Topology.ANY, "", ""), id="among others"),
    pytest.param({"hami.io/node-scheduler-policy": "spread"}, (Topology.ANY, "spread", ""), id="nodes"),
    pytest.param({"hami.io/gpu-scheduler-policy": "binpack"}, (Topology.ANY, "", "binpack"), id="cards"),
    pytest.param({"hami.io/gpu-scheduler-policy": "topology-aware"}, (Topology.ANY, "", "topology"), id="topology"),
    pytest.param({"hami.io/gpu-scheduler-policy": "numa"}, (Topology.ANY, "", "topology"), id="numa"),
    pytest.param({"hami.io/gpu-scheduler-policy": "binpack, numa"}, (Topology.ANY, "", "binpack"), id="the first"),
    pytest.param(
        {"hami.io/gpu-scheduler-policy": "spread,topology-aware"}, (Topology.ANY, "", "topology"), id="topology wins"
    ),
]


@pytest.mark.parametrize(("annotations", "expected"), WISHES)
def test_policies_and_topology_are_wished_by_annotation(
    annotations: dict[str, str], expected: tuple[Topology, str, str]
) -> None:
    constraints = HAMI.constraints(pod_of({}, annotations=annotations))
    assert (constraints.topology, constraints.node_policy, constraints.gpu_policy) == expected


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        pytest.param("nvidia.com/numa-bind", "maybe", "'maybe' is neither true nor false", id="no truth"),
        pytest.param(
            "nvidia.com/vgpu-mode", "mig", "not supported; .* ask for nvidia.com/mig-1g.5gb", id="dynamic MIG"
        ),
        pytest.param("nvidia.com/vgpu-mode", "mps", "not supported; .* for MPS ask for keti.com/mpsgpu", id="MPS"),
        pytest.param("hami.io/gpu-scheduler-policy", "binpack,mutex", "ask for gpucores: 100", id="mutex"),
        pytest.param(
            "hami.io/gpu-scheduler-policy", "best", "'best' is not a policy; write one of binpack", id="unknown"
        ),
        pytest.param(
            "hami.io/node-scheduler-policy", "numa", "'numa' is not a policy; write one of binpack, spread", id="node"
        ),
    ],
)
def test_a_wish_that_cannot_be_granted_is_refused_by_name(key: str, value: str, text: str) -> None:
    """Also on pods that speak another dialect."""
    with pytest.raises(BadDemand, match=f"annotation {key}: .*{text}"):
        demand_of(make_pod(metadata={"annotations": {key: value}}), DIALECTS)


# -- what is written at bind and at the hand-over


def placed(containers: Sequence[ContainerRequest], indexes: Sequence[Sequence[int]], cards: NodeGpus) -> Placement:
    slices = {
        container.name: tuple(cut(container.part, cards.by_index[index], 1) for index in chosen)
        for container, chosen in zip(containers, indexes, strict=True)
    }
    return Placement(cards.node, "hami", slices)


DEVICES: list[Any] = [
    pytest.param(
        pod_of({GPU: 1, MEM: 3000}, {GPU: 1, MEM: 5000}),
        [[0], [0]],
        "GPU-n1-0,NVIDIA,3000,0:;GPU-n1-0,NVIDIA,5000,0:;",
        id="two containers",
    ),
    pytest.param(
        pod_of({GPU: 2, MEM: 3000, CORES: 30}),
        [[1, 0]],
        "GPU-n1-1,NVIDIA,3000,30:GPU-n1-0,NVIDIA,3000,30:;",
        id="two cards",
    ),
    pytest.param(
        pod_of({}, {GPU: 1, MEM: 5}, {}), [[1]], ";GPU-n1-1,NVIDIA,5,0:;;", id="containers without GPU have a place"
    ),
    pytest.param(
        pod_of({GPU: 1, MEM: 5}, inits=[{}, {GPU: 1, MEM: 7}]),
        [[1], [0]],
        ";GPU-n1-1,NVIDIA,7,0:;GPU-n1-0,NVIDIA,5,0:;",
        id="init containers come first",
    ),
    pytest.param(pod_of({GPU: 1, PERCENT: 50}), [[0]], f"GPU-n1-0,NVIDIA,{T4 // 2},0:;", id="percent become MiB"),
    pytest.param(pod_of({GPU: 1, PERCENT: 100}), [[0]], f"GPU-n1-0,NVIDIA,{T4},100:;", id="a whole card"),
    pytest.param(
        pod_of({GPU: 1, MEM: 3000, CORES: 100}), [[0]], "GPU-n1-0,NVIDIA,3000,100:;", id="all cores, some memory"
    ),
]


@pytest.mark.parametrize(("pod", "indexes", "devices"), DEVICES)
def test_the_annotations_are_those_of_the_original(pod: Pod, indexes: list[list[int]], devices: str) -> None:
    """As HAMi 2.10 does it."""
    cards, request = make_cards(unit_mib=1), HAMI.demand(pod)
    placement = placed(request.containers, indexes, cards)
    assert HAMI.annotations(pod, request, placement, cards, 1_705_054_796_123_456_789) == {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1705054796",
        "hami.io/vgpu-devices-to-allocate": devices,
        "hami.io/vgpu-devices-allocated": devices,
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": "1705054796",
    }
    assert HAMI.labels(pod, request, placement, cards) == {"hami.io/vgpu-node": "n1"}


def test_a_node_s_name_that_is_no_label_is_left_out_of_the_labels() -> None:
    cards, pod = make_cards("n" * 64), pod_of({GPU: 1, MEM: 5})
    request = HAMI.demand(pod)
    assert HAMI.labels(pod, request, placed(request.containers, [[0]], cards), cards) == {}


@pytest.mark.parametrize(
    ("containers", "left"),
    [
        pytest.param([{GPU: 1, MEM: 5}], ";;", id="one container"),
        pytest.param([{GPU: 1, MEM: 5}, {GPU: 1, MEM: 5}], ";;;;", id="two"),
        pytest.param([{}, {GPU: 1, MEM: 5}, {}], ";;;;", id="one of three"),
    ],
)
def test_the_list_of_cards_to_hand_over_is_left_as_the_original_leaves_it(
    containers: list[dict[str, Any]], left: str
) -> None:
    """As HAMi 2.10 does it: at each container it writes the list anew, with one place more."""
    assert HAMI.hand_over_marks(pod_of(*containers), 17)[TO_ALLOCATE] == left


def test_the_marks_of_the_hand_over_are_those_of_the_original() -> None:
    marks = HAMI.hand_over_marks(pod_of({GPU: 1, MEM: 5}), 17)
    assert marks.keys() == {"hami.io/bind-phase", TO_ALLOCATE}
    assert HAMI.handed_over(pod_of({GPU: 1, MEM: 5}, annotations=marks))
    assert not HAMI.handed_over(pod_of({GPU: 1, MEM: 5}, annotations={"hami.io/bind-phase": "allocating"}))


def test_every_key_that_is_written_is_one_that_users_may_not_write() -> None:
    cards, pod = make_cards(), pod_of({GPU: 1, MEM: 5})
    request = HAMI.demand(pod)
    placement = placed(request.containers, [[0]], cards)
    written = {
        **HAMI.annotations(pod, request, placement, cards, 0),
        **HAMI.labels(pod, request, placement, cards),
        **HAMI.hand_over_marks(pod, 0),
    }
    assert written.keys() <= set(HAMI.placement_keys)


def test_a_container_finds_what_hami_core_obeys() -> None:
    cards = make_cards(unit_mib=1)
    pod = pod_of({GPU: 2, MEM: 3000, CORES: 30, PRIORITY: 1}, {GPU: 1, MEM: 5})
    request = HAMI.demand(pod)
    placement = placed(request.containers, [[1, 0], [0]], cards)
    assert HAMI.environment(pod, request, "c0", placement, cards) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-n1-1,GPU-n1-0",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "3000m",
        "CUDA_DEVICE_SM_LIMIT": "30",
        "CUDA_TASK_PRIORITY": "1",
    }
    assert "CUDA_TASK_PRIORITY" not in HAMI.environment(pod, request, "c1", placement, cards)


def test_ids_are_those_of_the_original() -> None:
    """As HAMi 2.10 does it."""
    ids = HAMI.device_ids(GPU, make_cards())
    assert ids[:2] == [("GPU-n1-0-0", "GPU-n1-0"), ("GPU-n1-0-1", "GPU-n1-0")]
    assert len(ids) == 20
    assert HAMI.resources[0].socket == "nvidia-gpu.sock"


# -- reading back

READ: list[Any] = [
    pytest.param({ALLOCATED: "GPU-n1-1,NVIDIA,5,0:;"}, {"c0": ["GPU-n1-1"]}, id="one card"),
    pytest.param({TO_ALLOCATE: "GPU-n1-1,NVIDIA,5,0:;"}, {"c0": ["GPU-n1-1"]}, id="not handed over yet"),
    pytest.param({ALLOCATED: "GPU-n1-1,NVIDIA,5,0:;", TO_ALLOCATE: ";;"}, {"c0": ["GPU-n1-1"]}, id="handed over"),
    pytest.param({ALLOCATED: "GPU-n1-1,NVIDIA,5,0"}, {"c0": ["GPU-n1-1"]}, id="without the marks of the end"),
    pytest.param({ALLOCATED: "GPU-n1-1[1-0],NVIDIA,5,0:;"}, {"c0": ["GPU-n1-1"]}, id="an instance that HAMi made"),
    pytest.param({ALLOCATED: "GPU-n1-1,NVIDIA,9,9:;"}, {"c0": ["GPU-n1-1"]}, id="sizes follow from the demand"),
    pytest.param({}, None, id="no record"),
    pytest.param({ALLOCATED: ""}, f"{ALLOCATED} names 0 cards for container c0, which asks for 1", id="empty"),
    pytest.param({ALLOCATED: ";;"}, f"{ALLOCATED} has 2 entries, but the pod has 1 containers", id="too many places"),
    pytest.param(
        {ALLOCATED: "GPU-n1-1,NVIDIA,5,0:GPU-n1-0,NVIDIA,5,0:;"}, f"{ALLOCATED} names 2 cards", id="too many cards"
    ),
    pytest.param({ALLOCATED: "GPU-gone,NVIDIA,5,0:;"}, f"{ALLOCATED} names card 'GPU-gone'", id="a card that is gone"),
    pytest.param({ALLOCATED: "GPU-n1-1:;"}, f"{ALLOCATED}: 'GPU-n1-1:' is not a list", id="no fields"),
]


@pytest.mark.parametrize(("annotations", "expected"), READ)
def test_an_original_s_record_is_read_back(
    annotations: dict[str, str], expected: dict[str, list[str]] | str | None
) -> None:
    pod = pod_of({GPU: 1, MEM: 5}, annotations=annotations, node="n1")
    if isinstance(expected, str):
        with pytest.raises(BadRecord, match=expected):
            HAMI.read_back(pod, make_cards(unit_mib=1))
        return
    placement = HAMI.read_back(pod, make_cards(unit_mib=1))
    found = placement and {name: [part.uuid for part in parts] for name, parts in placement.containers.items()}
    assert found == expected
    assert placement is None or [part.mib for part in placement.slices()] == [5]


def test_a_record_from_before_hami_counted_init_containers_is_read_back() -> None:
    pod = pod_of({}, {GPU: 1, MEM: 5}, inits=[{}], annotations={ALLOCATED: ";GPU-n1-1,NVIDIA,5,0:;"}, node="n1")
    placement = HAMI.read_back(pod, make_cards(unit_mib=1))
    assert placement is not None
    assert [part.uuid for part in placement.containers["c1"]] == ["GPU-n1-1"]


LIMITS = st.one_of(
    st.just({}),
    st.builds(
        lambda cards, memory, cores: {**cards, **memory, **cores},
        st.sampled_from([{GPU: "1"}, {GPU: "2"}]),
        st.sampled_from([{MEM: "1"}, {MEM: "3000"}, {PERCENT: "7"}, {PERCENT: "100"}]),
        st.sampled_from([{}, {CORES: "0"}, {CORES: "33"}, {CORES: "100"}]),
    ),
)


@st.composite
def placed_pods(draw: st.DrawFn) -> tuple[Pod, Placement, NodeGpus]:
    cards = make_cards(mib=draw(st.lists(st.integers(3000, 81920), min_size=2, max_size=4)), unit_mib=1)
    mains, inits = draw(st.lists(LIMITS, max_size=3)), draw(st.lists(LIMITS, max_size=2))
    pod = pod_of({GPU: 1, MEM: "5"}, *mains, inits=inits, node="n1")
    containers = HAMI.demand(pod).containers
    indexes = [draw(st.permutations(range(len(cards.gpus))))[: c.part.cards] for c in containers]
    return pod, placed(containers, indexes, cards), cards


@given(placed_pods())
def test_what_is_written_is_read_back(case: tuple[Pod, Placement, NodeGpus]) -> None:
    pod, placement, cards = case
    request = HAMI.demand(pod)
    written = {**HAMI.annotations(pod, request, placement, cards, 0)}
    bound = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=written))
    assert HAMI.read_back(bound, cards) == placement
    holding = holding_of(bound, cards, DIALECTS)
    assert holding is not None
    assert holding.charges == charges(placement, request)


# -- nodes without our agent

CARD = {
    "id": "GPU-a",
    "index": 1,
    "count": 10,
    "devmem": 32768,
    "devcore": 100,
    "type": "NVIDIA-Tesla V100-PCIE-32GB",
    "numa": 1,
    "mode": "hami-core",
    "health": True,
}
OTHER = {"id": "GPU-b", "count": 10, "devmem": 81920, "devcore": 100, "type": "NVIDIA A100 80GB PCIe", "health": True}


def hami_node(*cards: Mapping[str, Any], **annotations: str) -> NodeGpus:
    keys = {f"hami.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return cards_of(make_node("old", annotations={REGISTER: json.dumps(cards), **keys}, capacity={GPU: "20"}), DIALECTS)


def test_the_cards_are_as_hami_registers_them() -> None:
    found = hami_node(CARD, OTHER)
    assert [(gpu.uuid, gpu.index, gpu.model, gpu.mib, gpu.numa, gpu.healthy, gpu.mode) for gpu in found.gpus] == [
        ("GPU-b", 0, "NVIDIA A100 80GB PCIe", 81920, 0, True, Mode.TIME_SLICED),
        ("GPU-a", 1, "Tesla V100-PCIE-32GB", 32768, 1, True, Mode.TIME_SLICED),
    ]
    assert (found.unit_mib, found.dialects) == (1, frozenset(("hami", "nvidia")))


TEXTS: list[Any] = [
    pytest.param(
        "GPU-a,10,32768,100,NVIDIA-Tesla V100,0,true:GPU-b,10,16384,100,NVIDIA-T4,-1,false:", id="seven fields"
    ),
    pytest.param(
        "GPU-b,10,16384,100,NVIDIA-T4,-1,false,1,hami-core:GPU-a,10,32768,100,NVIDIA-Tesla V100,0,true,0,hami-core:",
        id="nine fields",
    ),
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_older_text_is_read_too(text: str) -> None:
    found = cards_of(make_node("old", annotations={REGISTER: text}), DIALECTS)
    assert [(gpu.uuid, gpu.index, gpu.model, gpu.mib, gpu.numa, gpu.healthy) for gpu in found.gpus] == [
        ("GPU-a", 0, "Tesla V100", 32768, 0, True),
        ("GPU-b", 1, "T4", 16384, None, False),
    ]


def test_a_health_that_is_left_out_is_bad_health() -> None:
    """As Go leaves out what is false."""
    (gpu,) = hami_node({**CARD, "health": False}).gpus
    (same,) = hami_node({key: value for key, value in CARD.items() if key != "health"}).gpus
    assert (gpu.healthy, same.healthy) == (False, False)


def test_cordoned_cards_and_those_that_hami_cuts_up_take_nobody_new() -> None:
    found = hami_node(CARD, OTHER, {**OTHER, "id": "GPU-c", "index": 2, "mode": "mig"}, device_cordon=" GPU-a ,")
    assert [gpu.uuid for gpu in found.gpus if found.sells(gpu)] == ["GPU-b"]


def test_pair_scores_become_links() -> None:
    scores = json.dumps([{"uuid": "GPU-a", "score": {"GPU-b": 110, "GPU-a": 0}}, {"uuid": "GPU-b"}])
    found = hami_node(CARD, OTHER, node_nvidia_score=scores)
    assert (found.by_uuid["GPU-a"].links, found.by_uuid["GPU-b"].links) == ((Link("GPU-b", 110),), ())


@pytest.mark.parametrize(
    ("register", "text"),
    [
        pytest.param("[{", "cannot be read", id="half of it"),
        pytest.param('[{"id": "GPU-a"}]', "devmem", id="no memory"),
        pytest.param('[{"id": "GPU-a", "devmem": -1}]', "devmem", id="negative memory"),
        pytest.param('[{"devmem": 1}]', "id", id="no uuid"),
        pytest.param(json.dumps([CARD, CARD]), "names a card twice", id="one card twice"),
        pytest.param("GPU-a,10", "'GPU-a,10' has 2 fields, not 7 or 9", id="too few fields"),
        pytest.param("GPU-a,10,x,100,T4,0,true:", "devmem", id="no number"),
        pytest.param("GPU-a,10,9,100,T4,0,perhaps:", "health", id="no truth"),
    ],
)
def test_a_register_that_cannot_be_read_is_named(register: str, text: str) -> None:
    with pytest.raises(BadRecord, match=f"{REGISTER}.*{text}"):
        cards_of(make_node("old", annotations={REGISTER: register}), DIALECTS)


def test_scores_that_cannot_be_read_are_named() -> None:
    with pytest.raises(BadRecord, match=r"hami\.io/node-nvidia-score cannot be read"):
        hami_node(CARD, node_nvidia_score="{}")


def test_an_empty_register_is_a_node_without_cards() -> None:
    assert hami_node().gpus == ()
    assert HAMI.capacity(make_node("plain")) is None


# -- words


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_words_without_numbers(reason: Reason) -> None:
    assert not any(letter.isdigit() for letter in HAMI.words(reason))


def test_refusals_carry_hami_s_codes() -> None:
    assert HAMI.words(Reason.WRONG_MODEL) == "CardTypeMismatch: no GPU of the requested model"


def test_the_sample_pod_is_one_that_the_dialect_takes() -> None:
    demand = demand_of(msgspec.convert(HAMI.sample_pod(), Pod), DIALECTS)
    assert demand is not None
    assert demand.request.containers[0].part == Part(1, 30, Memory(3000))
