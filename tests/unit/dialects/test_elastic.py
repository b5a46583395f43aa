"""elastic's words, in every generation of its names: what it asks for, what it writes, what it reads back."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.dialects import demand_of, holding_of, standard_dialects
from aliquot.dialects.elastic import Elastic
from aliquot.errors import BadDemand, BadRecord
from aliquot.model import Charge, Life, Memory, NodeGpus, Part, Placement, Pod, Reason, Unit, charges, cut
from tests.factories import container_manifest, make_cards, make_node, make_pod

ELASTIC = Elastic()
PERCENT = "elastic-gpu/gpu-percent"
CORE = "elasticgpu.io/gpu-core"
MEMORY = "elasticgpu.io/gpu-memory"

KEYS = {
    "elastic-gpu": ("elastic-gpu/assume", "elastic-gpu/container-"),
    "elasticgpu.io": ("elasticgpu.io/assumed", "elasticgpu.io/container-"),
    "elasticgpu.com": ("elasticgpu.io/assumed", "elasticgpu.io/container-"),
    "nano-gpu": ("nano-gpu/assume", "nano-gpu/container-"),
    "nano-gpu.io": ("nano-gpu.io/gpu", "nano-gpu.io/gpu-"),
}
"""What each generation writes: annotation and label of a placed pod, and the annotation of each container's cards."""
IN_PERCENT = ("elastic-gpu", "nano-gpu")
IN_CORES = ("elasticgpu.io", "elasticgpu.com", "nano-gpu.io")


def asking(name: str, limits: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return container_manifest(
        name, None, resources={"limits": {key: str(value) for key, value in limits.items()}}, **fields
    )


def percents(*amounts: Any, prefix: str = "elastic-gpu") -> list[dict[str, Any]]:
    """Containers c0, c1, …; None asks for nothing."""
    return [
        asking(f"c{place}", {} if amount is None else {f"{prefix}/gpu-percent": amount})
        for place, amount in enumerate(amounts)
    ]


def cores(*amounts: tuple[Any, Any], prefix: str = "elasticgpu.io") -> list[dict[str, Any]]:
    """Containers c0, c1, … that ask for (core, memory)."""
    return [
        asking(f"c{place}", {f"{prefix}/gpu-core": core, f"{prefix}/gpu-memory": memory})
        for place, (core, memory) in enumerate(amounts)
    ]


def pod_of(containers: Sequence[Mapping[str, Any]], annotations: Mapping[str, str] | None = None, **fields: Any) -> Pod:
    metadata = {"annotations": dict(annotations or {}), "labels": fields.pop("labels", {})}
    return make_pod(containers=list(containers), metadata=metadata, **fields)


def parts(pod: Pod, dialect: Elastic = ELASTIC) -> dict[str, Part]:
    return {container.name: container.part for container in dialect.demand(pod).containers}


# -- demand


@pytest.mark.parametrize("prefix", IN_PERCENT)
def test_a_percent_is_one_of_cores_and_memory_of_one_card_and_hundreds_are_whole_cards(prefix: str) -> None:
    pod = pod_of(percents(20, None, 0, 100, 300, "1500m", prefix=prefix), priority=7)
    assert parts(pod) == {
        "c0": Part(cores=20, memory=Memory(20, Unit.PERCENT)),
        "c3": Part(whole=True),
        "c4": Part(cards=3, whole=True),
        "c5": Part(cores=2, memory=Memory(2, Unit.PERCENT)),
    }
    request = ELASTIC.demand(pod)
    assert (request.uid, request.pod, request.dialect) == (pod.metadata.uid, "default/p", "elastic")
    assert (request.priority, request.together) == (7, False)


@pytest.mark.parametrize("prefix", IN_CORES)
def test_cores_and_memory_are_a_part_of_one_card_and_hundreds_of_cores_whole_cards(prefix: str) -> None:
    unit = Unit.NODE if prefix == "nano-gpu.io" else Unit.MIB
    pod = pod_of(cores((30, 4096), (0, 0), (0, 256), (30, 0), (100, 0), (200, 77), prefix=prefix))
    assert parts(pod) == {
        "c0": Part(cores=30, memory=Memory(4096, unit)),
        "c2": Part(memory=Memory(256, unit)),
        "c3": Part(cores=30, memory=Memory(0, unit)),
        "c4": Part(whole=True),
        "c5": Part(cards=2, whole=True),
    }


def test_init_containers_and_sidecars_count_as_kubernetes_counts_them() -> None:
    init = [asking("i", {PERCENT: 30}), asking("s", {PERCENT: 10}, restartPolicy="Always")]
    request = ELASTIC.demand(pod_of(percents(20), initContainers=init))
    assert [(c.name, c.life) for c in request.containers] == [
        ("i", Life.INIT),
        ("s", Life.SIDECAR),
        ("c0", Life.MAIN),
    ]


BOTH = [*percents(20), asking("other", {MEMORY: 256})]
LONG = "n" * 54
BAD: list[Any] = [
    pytest.param(percents(0), f"no container of the pod asks for more than 0 of {PERCENT} or {CORE}", id="nothing"),
    pytest.param(percents(150), f"container c0, limits, {PERCENT}: 150 .* write 100 or 200", id="150 percent"),
    pytest.param(percents(20, "1E"), f"container c1, limits, {PERCENT}: .* more than any node has", id="an exa"),
    pytest.param(percents("x"), f"container c0, limits, {PERCENT}: 'x' is not a Kubernetes quantity", id="a word"),
    pytest.param(percents("-1"), f"container c0, limits, {PERCENT}: '-1' is negative", id="less than nothing"),
    pytest.param(cores((150, 1)), f"container c0, limits, {CORE}: 150 .* write 100 or 200", id="150 cores"),
    pytest.param(cores((1, "4Gi")), f"container c0, limits, {MEMORY}: .* counts MiB: write 4096, not 4Gi", id="bytes"),
    pytest.param(
        cores((1, "-1"), prefix="elasticgpu.com"), "limits, elasticgpu.com/gpu-memory: '-1' is neg", id="read names"
    ),
    pytest.param(BOTH, f"several generations of names .*{PERCENT}, {CORE}, {MEMORY}.*use one", id="two generations"),
    pytest.param(
        [asking(LONG, {PERCENT: 20})],
        f"container {LONG}: .* too long for the annotation elastic-gpu/container-<name>; use at most 53 letters",
        id="a name that no annotation can hold",
    ),
]


@pytest.mark.parametrize(("containers", "text"), BAD)
def test_a_bad_demand_is_refused_with_the_field_and_what_to_write_instead(
    containers: list[dict[str, Any]], text: str
) -> None:
    with pytest.raises(BadDemand, match=text):
        ELASTIC.demand(pod_of(containers))


def test_what_a_bound_pod_holds_is_counted_as_the_original_does() -> None:
    held = ELASTIC.held(pod_of(cores((150, 4096), (30, "8E"), (250, 0)))).containers
    assert [container.part.cards for container in held] == [1, 1, 2]
    assert [container.part.whole for container in held] == [True, False, True]
    assert held[1].part.memory.amount < 2**40


# -- capacity of nodes without our agent

CAPACITY: list[Any] = [
    pytest.param({PERCENT: "200"}, [100, 100], 1, id="percent alone: a card of 100 notional MiB"),
    pytest.param({"nano-gpu/gpu-percent": "1k"}, [100] * 10, 1, id="an older name, a canonical quantity"),
    pytest.param({CORE: "200", MEMORY: "30720"}, [15360, 15360], 1, id="cores and memory"),
    pytest.param({PERCENT: "200", CORE: "200", MEMORY: "30721"}, [15360, 15360], 1, id="who knows memory wins"),
    pytest.param({CORE: "200", MEMORY: "0"}, [0, 0], 1, id="the list of memory was too long for kubelet"),
    pytest.param({CORE: "200"}, [0, 0], 1, id="no plugin for memory"),
    pytest.param({"elasticgpu.com/gpu-core": "100", "elasticgpu.com/gpu-memory": "9"}, [9], 1, id="elasticgpu.com"),
    pytest.param({"nano-gpu.io/gpu-core": "200", "nano-gpu.io/gpu-memory": "30"}, [15360] * 2, 1024, id="first: GiB"),
    pytest.param({"nano-gpu.io/gpu-core": "100", "nano-gpu.io/gpu-memory": "15360"}, [15360], 1, id="first: MiB"),
    pytest.param({PERCENT: "99"}, None, 0, id="less than a card"),
    pytest.param({PERCENT: "x", CORE: "-1"}, None, 0, id="no quantities"),
    pytest.param({MEMORY: "4096"}, None, 0, id="memory without cores"),
    pytest.param({}, None, 0, id="a node without GPUs"),
]


@pytest.mark.parametrize(("capacity", "mib", "unit_mib"), CAPACITY)
def test_a_node_without_inventory_is_read_by_its_status(
    capacity: dict[str, str], mib: list[int] | None, unit_mib: int
) -> None:
    cards = ELASTIC.capacity(make_node("old", capacity=capacity))
    if mib is None:
        assert cards is None
    else:
        assert cards is not None
        assert ([gpu.mib for gpu in cards.gpus], cards.unit_mib) == (mib, unit_mib)


ALLOCATABLE: list[Any] = [
    pytest.param({}, [(15360, True)] * 4, id="all of it"),
    pytest.param({CORE: "300", MEMORY: "46080"}, [(15360, True)] * 3 + [(15360, False)], id="a card is gone"),
    pytest.param({CORE: "399"}, [(20480, True)] * 3 + [(20480, False)], id="memory is divided among what is left"),
    pytest.param({CORE: "0", MEMORY: "0"}, [(15360, False)] * 4, id="its plugin is gone"),
]


@pytest.mark.parametrize("prefix", ["elasticgpu.io", "elasticgpu.com"])
@pytest.mark.parametrize(("less", "cards"), ALLOCATABLE)
def test_cards_beyond_what_is_allocatable_are_there_and_not_sold(
    prefix: str, less: dict[str, str], cards: list[tuple[int, bool]]
) -> None:
    def named(resources: dict[str, str]) -> dict[str, str]:
        return {name.replace("elasticgpu.io", prefix): amount for name, amount in resources.items()}

    capacity = {CORE: "400", MEMORY: "61440"}
    seen = ELASTIC.capacity(make_node("old", capacity=named(capacity), allocatable=named(less)))
    assert seen is not None
    assert [(gpu.mib, seen.sells(gpu)) for gpu in seen.gpus] == cards


@pytest.mark.parametrize("capacity", [{PERCENT: "400"}, {"nano-gpu.io/gpu-core": "400", "nano-gpu.io/gpu-memory": "8"}])
def test_older_generations_look_at_capacity_alone(capacity: dict[str, str]) -> None:
    cards = ELASTIC.capacity(make_node("old", capacity=capacity, allocatable=dict.fromkeys(capacity, "0")))
    assert cards is not None
    assert [cards.sells(gpu) for gpu in cards.gpus] == [True] * 4


def test_a_generation_with_something_to_sell_comes_before_one_without() -> None:
    capacity = {PERCENT: "200", CORE: "200", MEMORY: "30720"}
    cards = ELASTIC.capacity(make_node("old", capacity=capacity, allocatable={CORE: "0", MEMORY: "0"}))
    assert cards is not None
    assert [(gpu.mib, cards.sells(gpu)) for gpu in cards.gpus] == [(100, True)] * 2


STATUS: list[Any] = [
    pytest.param("", [{}], "elasticgpu.io", id="no node: what is served"),
    pytest.param("", [{"elasticgpu.io/gpu-core": "100"}], "elasticgpu.io", id="elasticgpu.io"),
    pytest.param("", [{}, {"elasticgpu.com/gpu-core": "100"}], "elasticgpu.com", id="elasticgpu.com"),
    pytest.param("elasticgpu.com", [{}], "elasticgpu.com", id="elasticgpu.com by configuration"),
    pytest.param("", [{"nano-gpu.io/gpu-core": "100"}], "elasticgpu.io", id="a generation without status"),
    pytest.param("", [{PERCENT: "100"}], "elasticgpu.io", id="percents"),
]


@pytest.mark.parametrize(("prefix", "nodes", "shown"), STATUS)
def test_the_status_has_the_names_of_the_generation_that_is_used(
    prefix: str, nodes: list[dict[str, str]], shown: str
) -> None:
    names = Elastic(prefix).status_resources([make_node(capacity=capacity) for capacity in nodes])
    assert list(names) == [f"{shown}/gpu-core", f"{shown}/gpu-memory"]


def test_the_status_has_the_names_of_both_generations_while_both_are_used() -> None:
    nodes = [make_node(capacity={f"{prefix}/gpu-core": "100"}) for prefix in ("elasticgpu.com", "elasticgpu.io")]
    assert list(ELASTIC.status_resources(nodes)) == [
        *("elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"),
        *("elasticgpu.com/gpu-core", "elasticgpu.com/gpu-memory"),
    ]


def test_percents_fill_a_card_of_notional_size_exactly() -> None:
    cards = ELASTIC.capacity(make_node("old", capacity={PERCENT: "100"}))
    assert cards is not None
    slices = [cut(part, cards.gpus[0], cards.unit_mib) for part in parts(pod_of(percents(37, 63))).values()]
    assert [(part.cores, part.mib) for part in slices] == [(37, 37), (63, 63)]


# -- what is written at bind


def placed(pod: Pod, cards: NodeGpus, indexes: Mapping[str, Sequence[int]]) -> Placement:
    asked = parts(pod)
    slices = {
        name: tuple(cut(asked[name], cards.by_index[index], cards.unit_mib) for index in own)
        for name, own in indexes.items()
    }
    return Placement(cards.node, "elastic", slices)


def written(pod: Pod, cards: NodeGpus, indexes: Mapping[str, Sequence[int]]) -> tuple[dict[str, str], dict[str, str]]:
    """Annotations and labels."""
    request, placement = ELASTIC.demand(pod), placed(pod, cards, indexes)
    annotations = ELASTIC.annotations(pod, request, placement, cards, 17)
    return dict(annotations), dict(ELASTIC.labels(pod, request, placement, cards))


@pytest.mark.parametrize("prefix", IN_PERCENT)
def test_percents_write_an_index_per_container_and_minus_one_without_gpu(prefix: str) -> None:
    """As the original does it."""
    assumed, container = KEYS[prefix]
    pod = pod_of(percents(20, None, 200, prefix=prefix), initContainers=[asking("init", {})])
    assert written(pod, make_cards(), {"c0": [1], "c2": [1, 0]}) == (
        {assumed: "true", f"{container}c0": "1", f"{container}c1": "-1", f"{container}c2": "0,1"},
        {assumed: "true"},
    )


@pytest.mark.parametrize("prefix", IN_CORES)
def test_cores_and_memory_write_an_index_per_gpu_container_alone(prefix: str) -> None:
    """As the original does it, without a card for who asked for none."""
    assumed, container = KEYS[prefix]
    pod = pod_of(cores((30, 4), (0, 0), (200, 0), prefix=prefix))
    assert written(pod, make_cards(), {"c0": [1], "c2": [1, 0]}) == (
        {assumed: "true", f"{container}c0": "1", f"{container}c2": "0,1"},
        {assumed: "true"},
    )


def test_a_container_without_gpu_whose_key_the_api_server_would_refuse_gets_none() -> None:
    pod = pod_of([*percents(20), asking(LONG, {})])
    annotations, _ = written(pod, make_cards(), {"c0": [0]})
    assert annotations == {"elastic-gpu/assume": "true", "elastic-gpu/container-c0": "0"}


def test_a_demand_that_was_read_among_all_dialects_is_written_in_its_own_words() -> None:
    pod, cards = pod_of(percents(20, prefix="nano-gpu")), make_cards()
    demand = demand_of(pod, standard_dialects())
    assert demand is not None
    keys = demand.dialect.annotations(pod, demand.request, placed(pod, cards, {"c0": [1]}), cards, 0)
    assert keys == {"nano-gpu/assume": "true", "nano-gpu/container-c0": "1"}


@pytest.mark.parametrize("prefix", KEYS)
def test_every_key_that_is_written_is_guarded(prefix: str) -> None:
    pod = pod_of(percents(20, None, prefix=prefix) if prefix in IN_PERCENT else cores((20, 0), prefix=prefix))
    annotations, labels = written(pod, make_cards(), {"c0": [0]})
    guards = ELASTIC.placement_keys
    assert all(any(_covers(own, key) for own in guards) for key in (*annotations, *labels))


def _covers(guard: str, key: str) -> bool:
    return key.startswith(guard[:-1]) if guard.endswith("*") else key == guard


def test_without_marks_of_its_own_a_pod_has_its_cards_when_it_runs() -> None:
    running = {"containerStatuses": [{"name": "c0", "state": {"running": {}}}]}
    assert ELASTIC.handed_over(pod_of(percents(20), status=running))
    assert not ELASTIC.handed_over(pod_of(percents(20)))
    assert ELASTIC.hand_over_marks(pod_of(percents(20)), 1) == {}


def test_a_container_finds_the_uuids_and_the_memory_of_its_cards() -> None:
    cards, pod = make_cards(), pod_of(percents(200))
    found = ELASTIC.environment(pod, ELASTIC.demand(pod), "c0", placed(pod, cards, {"c0": [0, 1]}), cards)
    assert found == {"NVIDIA_VISIBLE_DEVICES": "GPU-n1-0,GPU-n1-1", "ALIQUOT_MEMORY_MIB": "15360,15360"}


# -- the node


def test_all_generations_are_served_each_on_sockets_of_its_own() -> None:
    """Sockets as the original's."""
    assert {resource.name: resource.socket for resource in ELASTIC.resources} == {
        PERCENT: "elastic-gpu.sock",
        CORE: "elastic-gpushare-core.sock",
        MEMORY: "elastic-gpushare-mem.sock",
        "elasticgpu.com/gpu-core": "elasticgpu.com-core.sock",
        "elasticgpu.com/gpu-memory": "elasticgpu.com-mem.sock",
        "nano-gpu/gpu-percent": "nano-gpu.sock",
        "nano-gpu.io/gpu-core": "nano-gpu.io-core.sock",
        "nano-gpu.io/gpu-memory": "nano-gpu.io-mem.sock",
    }
    assert ELASTIC.resource == PERCENT


IDS: list[Any] = [
    pytest.param(PERCENT, 200, "nano-0-00", "nano-1-99", id="percent"),
    pytest.param(CORE, 200, "0-00", "1-99", id="cores"),
    pytest.param(MEMORY, 5120, "0-00", "1-3071", id="one per MiB"),
    pytest.param("nano-gpu.io/gpu-memory", 5, "0-00", "1-02", id="one per node unit"),
]


@pytest.mark.parametrize(("resource", "count", "first", "last"), IDS)
def test_ids_are_those_of_the_original(resource: str, count: int, first: str, last: str) -> None:
    ids = ELASTIC.device_ids(resource, make_cards(mib=(2048, 3072)))
    assert (len(ids), ids[0], ids[-1]) == (count, (first, "GPU-n1-0"), (last, "GPU-n1-1"))


# -- reading back


def read_back(pod: Pod, cards: NodeGpus | None = None) -> dict[str, list[tuple[str, int, int]]]:
    """(uuid, cores, MiB) by container."""
    placement = ELASTIC.read_back(pod, cards or make_cards())
    assert placement is not None
    return {name: [(part.uuid, part.cores, part.mib) for part in own] for name, own in placement.containers.items()}


@pytest.mark.parametrize("prefix", IN_PERCENT)
def test_an_original_s_percents_are_read_back_by_index(prefix: str) -> None:
    assumed, container = KEYS[prefix]
    keys = {assumed: "true", f"{container}c0": "1", f"{container}c1": "-1", f"{container}c2": "0,1"}
    pod = pod_of(percents(20, None, 200, prefix=prefix), keys, node="n1")
    assert read_back(pod) == {
        "c0": [("GPU-n1-1", 20, 3072)],
        "c2": [("GPU-n1-0", 100, 15360), ("GPU-n1-1", 100, 15360)],
    }


@pytest.mark.parametrize("prefix", IN_CORES)
def test_an_original_s_cores_are_read_back_and_a_card_for_who_asked_for_none_is_not(prefix: str) -> None:
    assumed, container = KEYS[prefix]
    keys = {assumed: "true", f"{container}c0": "1", f"{container}c1": "0", f"{container}c2": "0"}
    mib = 4096 if prefix == "nano-gpu.io" else 4
    pod = pod_of(cores((30, 4), (0, 0), (150, 0), prefix=prefix), keys, node="n1")
    assert read_back(pod) == {"c0": [("GPU-n1-1", 30, mib)], "c2": [("GPU-n1-0", 100, 15360)]}


def test_a_pod_with_keys_of_another_generation_is_read_too() -> None:
    """For a while the scheduler wrote nano-gpu where the agent read elastic-gpu."""
    pod = pod_of(percents(20), {"nano-gpu/assume": "true", "nano-gpu/container-c0": "1"})
    assert read_back(pod) == {"c0": [("GPU-n1-1", 20, 3072)]}


def test_keys_of_the_pod_s_own_generation_come_first() -> None:
    keys = {"nano-gpu/assume": "true", "nano-gpu/container-c0": "1"}
    own = {"elastic-gpu/assume": "true", "elastic-gpu/container-c0": "0"}
    assert read_back(pod_of(percents(20), keys | own)) == {"c0": [("GPU-n1-0", 20, 3072)]}


def test_the_label_alone_says_that_a_pod_is_placed() -> None:
    pod = pod_of(percents(20), {"elastic-gpu/container-c0": "1"}, labels={"elastic-gpu/assume": "true"})
    assert read_back(pod) == {"c0": [("GPU-n1-1", 20, 3072)]}


def test_a_pod_that_is_not_assumed_has_no_placement() -> None:
    assert ELASTIC.read_back(pod_of(percents(20), {"elastic-gpu/container-c0": "1"}), make_cards()) is None


RUNS = {"containerStatuses": [{"name": "c0", "state": {"running": {}}}]}


@pytest.mark.parametrize(
    ("containers", "key", "status"),
    [
        pytest.param(percents(20), "elastic-gpu/container-c0", RUNS, id="percents of a pod that runs"),
        pytest.param(cores((20, 3072)), "elasticgpu.io/container-c0", RUNS, id="cores of a pod that runs"),
        pytest.param(cores((20, 3072)), "elasticgpu.io/container-c0", {}, id="cores of a pod that is bound"),
    ],
)
def test_a_pod_without_assumed_is_charged_on_the_card_that_its_container_s_key_names(
    containers: list[dict[str, Any]], key: str, status: dict[str, Any]
) -> None:
    holding = holding_of(pod_of(containers, {key: "1"}, node="n1", status=status), make_cards(), standard_dialects())
    assert holding is not None
    assert (holding.charges, holding.doubt) == ({"GPU-n1-1": Charge(20, 3072, shares=1)}, "")


def test_without_assumed_the_cards_of_every_container_must_be_named() -> None:
    pod = pod_of(cores((20, 0), (20, 0)), {"elasticgpu.io/container-c0": "1"}, node="n1", status=RUNS)
    assert ELASTIC.read_back(pod, make_cards()) is None
    holding = holding_of(pod, make_cards(), standard_dialects())
    assert holding is not None
    assert holding.doubt
    assert holding.charges.keys() == {"GPU-n1-0", "GPU-n1-1"}


@pytest.mark.parametrize("text", ["", "-1", "2", "0,0", "0, 1", "x", "\u0661", "1" * 5000])
def test_a_number_that_is_no_card_of_the_node_is_named_with_its_key(text: str) -> None:
    keys = {"elastic-gpu/assume": "true", "elastic-gpu/container-c0": text}
    with pytest.raises(BadRecord, match="elastic-gpu/container-c0"):
        ELASTIC.read_back(pod_of(percents(200), keys), make_cards())


@pytest.mark.parametrize("prefix", ["elastic-gpu", "elasticgpu.io"])
def test_a_key_that_is_missing_is_named(prefix: str) -> None:
    assumed, container = KEYS[prefix]
    pod = pod_of(percents(20) if prefix in IN_PERCENT else cores((20, 0)), {assumed: "true"})
    with pytest.raises(BadRecord, match=f"{container}c0 is missing, but container c0 asks for {prefix}/gpu-"):
        ELASTIC.read_back(pod, make_cards())


def test_a_pod_that_the_original_placed_is_adopted() -> None:
    keys = {"elasticgpu.io/assumed": "true", "elasticgpu.io/container-c0": "0", "elasticgpu.io/container-c1": "1"}
    holding = holding_of(pod_of(cores((150, 7), (30, 4096)), keys, node="n1"), make_cards(), standard_dialects())
    assert holding is not None
    assert holding.charges == {
        "GPU-n1-0": Charge(100, 15360, shares=1),
        "GPU-n1-1": Charge(30, 4096, shares=1),
    }


@pytest.mark.parametrize(
    ("keys", "held"),
    [
        pytest.param({"elastic-gpu": "0", "elasticgpu.io": "0"}, ["GPU-n1-0"], id="on one card"),
        pytest.param({"elastic-gpu": "0", "elasticgpu.io": "1"}, ["GPU-n1-0", "GPU-n1-1"], id="on two"),
    ],
)
def test_a_container_that_others_let_ask_in_two_generations_holds_all_of_its_cards(
    keys: dict[str, str], held: list[str]
) -> None:
    limits = {"elastic-gpu/gpu-percent": 20, "elasticgpu.io/gpu-core": 30, "elasticgpu.io/gpu-memory": 100}
    annotations = {KEYS[prefix][0]: "true" for prefix in keys} | {f"{KEYS[p][1]}c0": text for p, text in keys.items()}
    holding = holding_of(pod_of([asking("c0", limits)], annotations, node="n1"), make_cards(), standard_dialects())
    assert holding is not None
    assert holding.charges == dict.fromkeys(held, Charge(100, 15360, shares=1))


def test_containers_of_two_generations_hold_their_own() -> None:
    containers = [asking("c0", {"elastic-gpu/gpu-percent": 20}), asking("c1", {"elasticgpu.io/gpu-core": 30})]
    annotations = {KEYS[prefix][0]: "true" for prefix in ("elastic-gpu", "elasticgpu.io")}
    annotations |= {"elastic-gpu/container-c0": "0", "elasticgpu.io/container-c1": "0"}
    holding = holding_of(pod_of(containers, annotations, node="n1"), make_cards(), standard_dialects())
    assert holding is not None
    assert holding.charges == {"GPU-n1-0": Charge(50, 3072, shares=2)}


@pytest.mark.parametrize(
    ("units", "unit_mib"), [pytest.param(100, 1024, id="100 units are GiB"), pytest.param(101, 1, id="101 are MiB")]
)
def test_the_unit_of_a_node_of_the_oldest_generation_follows_from_its_size(units: int, unit_mib: int) -> None:
    cards = ELASTIC.capacity(make_node(capacity={"nano-gpu.io/gpu-core": 100, "nano-gpu.io/gpu-memory": units}))
    assert cards is not None
    assert (cards.unit_mib, cards.gpus[0].mib) == (unit_mib, units * unit_mib)


SIZES = (15360, 16276, 40960, 81920)
Choice = tuple[int, int, list[int]]
"""Percent, MiB and the indexes of the cards of one container; no card for one without GPU."""


@st.composite
def choices(draw: st.DrawFn) -> Choice:
    count = draw(st.integers(0, len(SIZES)))
    indexes = draw(st.permutations(range(len(SIZES))))[:count]
    if count == 1 and draw(st.booleans()):
        return draw(st.integers(1, 99)), draw(st.integers(0, SIZES[0])), indexes
    return 100 * count, 0, indexes


@given(
    st.sampled_from(list(KEYS)),
    st.lists(choices(), min_size=1, max_size=5).filter(lambda all_: any(own for *_, own in all_)),
    st.integers(0, 2),
)
def test_what_is_written_is_read_back(prefix: str, asked: list[Choice], inits: int) -> None:
    cards = make_cards(mib=SIZES, unit_mib=1)
    amounts = [(percent, mib) for percent, mib, _ in asked]
    in_percent = percents(*(percent for percent, _ in amounts), prefix=prefix)
    containers = in_percent if prefix in IN_PERCENT else cores(*amounts, prefix=prefix)
    spec: dict[str, Any] = {
        "initContainers": containers[:inits],
        "containers": containers[inits:] or [asking("main", {})],
    }
    pod = make_pod(**spec, uid="u")
    request = ELASTIC.demand(pod)
    placement = placed(pod, cards, {f"c{place}": own for place, (*_, own) in enumerate(asked) if own})
    keys = dict(ELASTIC.annotations(pod, request, placement, cards, 0))
    bound = make_pod(**spec, uid="u", metadata={"annotations": keys}, node="n1")
    again = ELASTIC.read_back(bound, cards)
    assert again is not None
    assert {name: set(own) for name, own in again.containers.items()} == {
        name: set(own) for name, own in placement.containers.items()
    }
    assert ELASTIC.held(bound) == request
    assert charges(again, request) == charges(placement, request)


@given(st.text(max_size=8), st.text(max_size=8), st.text(max_size=8), st.text(max_size=8))
def test_whatever_a_pod_says_is_read_or_refused(percent: str, core: str, memory: str, numbers: str) -> None:
    keys = {"elasticgpu.io/assumed": numbers, "elasticgpu.io/container-c0": numbers}
    for containers in (percents(percent), cores((core, memory))):
        pod = pod_of(containers, keys)
        with suppress(BadDemand):
            ELASTIC.demand(pod)
        with suppress(BadDemand, BadRecord):
            ELASTIC.read_back(pod, make_cards())


# -- names


def test_a_new_prefix_names_both_kinds_of_resources_and_the_known_ones_are_still_read() -> None:
    other = Elastic("example.com")
    served = [(resource.name, resource.socket) for resource in other.resources if resource.socket]
    assert served == [
        ("example.com/gpu-percent", "example.com.sock"),
        ("example.com/gpu-core", "elastic-gpushare-core.sock"),
        ("example.com/gpu-memory", "elastic-gpushare-mem.sock"),
    ]
    assert {resource.name for resource in ELASTIC.resources} < {resource.name for resource in other.resources}
    pod = pod_of(percents(20, None, prefix="example.com"))
    assert other.speaks(pod)
    assert not ELASTIC.speaks(pod)
    cards = make_cards()
    placement = Placement("n1", "elastic", {"c0": (cut(parts(pod, other)["c0"], cards.gpus[1], 1),)})
    assert other.annotations(pod, other.demand(pod), placement, cards, 0) == {
        "example.com/assume": "true",
        "example.com/container-c0": "1",
        "example.com/container-c1": "-1",
    }
    assert other.demand(pod_of(percents(20))).containers


@pytest.mark.parametrize("prefix", KEYS)
def test_a_known_prefix_serves_that_generation_with_its_own_keys(prefix: str) -> None:
    other = Elastic(prefix)
    served = [resource for resource in other.resources if resource.socket]
    assert served[0].name.startswith(f"{prefix}/")
    assert {resource.name for resource in other.resources} == {resource.name for resource in ELASTIC.resources}
    assert sorted(other.placement_keys) == sorted(ELASTIC.placement_keys)


@pytest.mark.parametrize("prefix", KEYS)
def test_no_other_dialect_speaks_for_its_pods(prefix: str) -> None:
    pod = pod_of(percents(20, prefix=prefix) if prefix in IN_PERCENT else cores((0, 1), prefix=prefix))
    assert [dialect.name for dialect in standard_dialects().values() if dialect.speaks(pod)] == ["elastic"]


def test_the_socket_of_the_first_generation_in_percent_is_the_original_s() -> None:
    assert Elastic("nano-gpu").resources[0].socket == "nano-gpu.sock"


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_words_without_numbers(reason: Reason) -> None:
    assert not any(letter.isdigit() for letter in ELASTIC.words(reason))


def test_the_original_s_words_stay() -> None:
    assert ELASTIC.words(Reason.NO_CARD_FITS) == "no enough resource to allocate"
    assert ELASTIC.words(Reason.NO_GPUS) == "no gpu available on node"


def test_the_sample_pod_is_one_that_the_dialect_takes() -> None:
    sample = msgspec.convert(ELASTIC.sample_pod(), Pod)
    assert parts(sample) == {"cuda": Part(cores=20, memory=Memory(20, Unit.PERCENT))}


def test_the_page_shows_the_example_as_it_is() -> None:
    root = Path(__file__).parents[3]
    example = (root / "examples" / "elastic.yaml").read_text()
    assert example in (root / "docs" / "dialects" / "elastic.md").read_text()
