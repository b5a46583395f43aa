"""Our own words: what a pod may say in them, and what is said to a pod that says it wrong."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.dialects import Demand, demand_of, make_dialects, placement_of, standard_dialects
from aliquot.errors import AliquotError, BadDemand
from aliquot.model import (
    Charge,
    Constraints,
    Life,
    Memory,
    ModelConstraint,
    Part,
    Placement,
    Pod,
    Request,
    Topology,
    Unit,
    charges,
    cut,
)
from aliquot.model.records import PLACEMENT, write_placement
from tests.factories import GPU_MEM, container_manifest, make_cards, make_gpu, make_pod

DIALECTS = standard_dialects()
ALIQUOT = DIALECTS["aliquot"]
GPU = "aliquot.io/gpu"


def container(name: str = "main", cards: Any = 1, **fields: Any) -> dict[str, Any]:
    return container_manifest(name, None, resources={"limits": {GPU: str(cards)}}, **fields)


def pod(annotations: dict[str, str] | None = None, *, cards: Any = 1, **fields: Any) -> Pod:
    metadata = {"annotations": annotations or {}}
    return make_pod(**{"containers": [container(cards=cards)], "metadata": metadata} | fields)


def part(annotations: dict[str, str], **fields: Any) -> Part:
    (asked,) = ALIQUOT.demand(pod(annotations, **fields)).containers
    return asked.part


def constraints(annotations: dict[str, str]) -> Constraints:
    demand = demand_of(pod(annotations), DIALECTS)
    assert demand is not None
    return demand.request.constraints


# -- parts

PARTS: list[Any] = [
    pytest.param({}, Part(whole=True), id="nothing named: a whole card"),
    pytest.param({"cores": "30", "memory": "4Gi"}, Part(1, 30, Memory(4096)), id="cores and memory"),
    pytest.param({"cores": "30"}, Part(1, 30), id="cores alone"),
    pytest.param({"memory": "4Gi"}, Part(1, 0, Memory(4096)), id="memory alone"),
    pytest.param({"memory": "1000M"}, Part(1, 0, Memory(954)), id="memory is rounded up to MiB"),
    pytest.param({"memory": "25%"}, Part(1, 0, Memory(25, Unit.PERCENT)), id="memory as a share of the card"),
    pytest.param({"cores": "0", "memory": "1e9"}, Part(1, 0, Memory(954)), id="no cores, and an exponent"),
    pytest.param({"cores": "100", "memory": "100%"}, Part(1, 100, Memory(100, Unit.PERCENT)), id="all, but by parts"),
    pytest.param(
        {"cores": "20", "cores-limit": "100", "memory": "2Gi", "memory-limit": "50%"},
        Part(1, 20, Memory(2048), cores_limit=100, memory_limit=Memory(50, Unit.PERCENT)),
        id="burst",
    ),
    pytest.param({"memory": "2Gi", "cores-limit": "50"}, Part(1, 0, Memory(2048), cores_limit=50), id="only a ceiling"),
    pytest.param({"sharing": "exclusive"}, Part(whole=True), id="exclusive"),
    pytest.param({"sharing": "time-sliced", "cores": "5"}, Part(1, 5), id="time-sliced"),
    pytest.param({"sharing": "mps"}, Part(1, 0, Memory(1, Unit.SLOT), slots=1), id="MPS, one slot"),
    pytest.param({"slots": "2"}, Part(1, 0, Memory(2, Unit.SLOT), slots=2), id="slots mean MPS"),
    pytest.param(
        {"slots": "2", "cores": "10", "memory": "1Gi"}, Part(1, 10, Memory(1024), slots=2), id="slots of another size"
    ),
]


def named(words: dict[str, str]) -> dict[str, str]:
    return {f"aliquot.io/{word}": text for word, text in words.items()}


@pytest.mark.parametrize(("words", "expected"), PARTS)
def test_annotations_say_how_much_of_each_card(words: dict[str, str], expected: Part) -> None:
    assert part(named(words)) == expected


@pytest.mark.parametrize(("written", "cards"), [(1, 1), (8, 8), ("0.1k", 100), (128, 128)])
def test_the_resource_says_how_many_cards(written: Any, cards: int) -> None:
    assert part({"aliquot.io/cores": "5"}, cards=written).cards == cards


def test_a_container_s_own_annotations_win_over_the_pod_s() -> None:
    request = ALIQUOT.demand(
        pod(
            {
                "aliquot.io/cores": "20",
                "aliquot.io/memory": "4Gi",
                "memory.aliquot.io/b": "8Gi",
                "cores-limit.aliquot.io/b": "40",
                "sharing.aliquot.io/c": "exclusive",
                "slots.aliquot.io/d": "3",
                "memory.aliquot.io/s": "10%",
            },
            containers=[container("a"), container("b", 2), container("c", 4), container("d")],
            initContainers=[container("i"), container("s", restartPolicy="Always")],
        )
    )
    assert {asked.name: (asked.part, asked.life) for asked in request.containers} == {
        "i": (Part(1, 20, Memory(4096)), Life.INIT),
        "s": (Part(1, 20, Memory(10, Unit.PERCENT)), Life.SIDECAR),
        "a": (Part(1, 20, Memory(4096)), Life.MAIN),
        "b": (Part(2, 20, Memory(8192), cores_limit=40), Life.MAIN),
        "c": (Part(4, whole=True), Life.MAIN),
        "d": (Part(1, 20, Memory(4096), slots=3), Life.MAIN),
    }


def test_a_request_names_its_pod_and_priority_and_leaves_out_containers_without_cards() -> None:
    spec: dict[str, Any] = {
        "containers": [container_manifest("plain", None), container("zero", 0), container("a")],
        "priority": 7,
    }
    asking = pod(**spec)
    request = ALIQUOT.demand(asking)
    assert (request.uid, request.pod, request.dialect) == (asking.metadata.uid, "default/p", "aliquot")
    assert (request.priority, request.together, [asked.name for asked in request.containers]) == (7, False, ["a"])


def test_containers_can_ask_for_the_same_cards() -> None:
    both = [container("a", 2), container("b", 2)]
    assert ALIQUOT.demand(pod(named({"together": "true", "cores": "10"}), containers=both)).together
    assert not ALIQUOT.demand(pod(named({"together": "false", "cores": "10"}), containers=both)).together


# -- wishes

WISHES: list[Any] = [
    pytest.param({"model": "A100, V100"}, Constraints(models=(ModelConstraint(("A100", "V100")),)), id="models"),
    pytest.param(
        {"not-model": "T4"}, Constraints(models=(ModelConstraint(("T4",), avoid=True),)), id="models to avoid"
    ),
    pytest.param({"uuid": "GPU-1,GPU-2"}, Constraints(only_uuids=frozenset({"GPU-1", "GPU-2"})), id="cards"),
    pytest.param({"not-uuid": "GPU-1"}, Constraints(not_uuids=frozenset({"GPU-1"})), id="cards to avoid"),
    pytest.param({"mig": "1g.5gb"}, Constraints(mig="1g.5gb"), id="a MIG profile"),
    pytest.param({"mig": "1G.10GB+ME"}, Constraints(mig="1g.10gb+me"), id="in any case"),
    pytest.param({"mig": "any"}, Constraints(mig="any"), id="any MIG instance"),
    pytest.param({"topology": "numa"}, Constraints(topology=Topology.NUMA), id="one NUMA node"),
    pytest.param({"topology": "nvlink"}, Constraints(topology=Topology.NVLINK), id="NVLink"),
    pytest.param({"topology": "any"}, Constraints(), id="no topology"),
    pytest.param({"node-policy": "spread"}, Constraints(node_policy="spread"), id="a node policy"),
    pytest.param(
        {"node-policy": "elastic-0.3-spread"}, Constraints(node_policy="elastic-0.3-spread"), id="a name with a version"
    ),
    pytest.param(
        {"gpu-policy": "topology, binpack"}, Constraints(gpu_policy="topology,binpack"), id="two GPU policies"
    ),
]


@pytest.mark.parametrize(("words", "expected"), WISHES)
def test_annotations_say_what_the_pod_wishes(words: dict[str, str], expected: Constraints) -> None:
    assert constraints(named(words)) == expected


def test_wishes_are_read_on_pods_of_other_dialects_too() -> None:
    demand = demand_of(
        make_pod(metadata={"annotations": named({"model": "A100", "epoch": "7", "woken": "now"})}), DIALECTS
    )
    assert demand is not None
    assert (demand.dialect.name, demand.request.constraints) == (
        "gpushare",
        Constraints(models=(ModelConstraint(("A100",)),)),
    )


@pytest.mark.parametrize(
    ("key", "text"),
    [
        pytest.param("aliquot.io/modle", "is unknown; did you mean aliquot.io/model", id="misspelt"),
        pytest.param("aliquot.io/x", "is unknown; known keys are aliquot.io/{model, ", id="nothing near"),
        pytest.param("aliquot.io/cores", "is for pods that ask for aliquot.io/gpu", id="a size"),
        pytest.param("aliquot.io/together", "is for pods that ask for aliquot.io/gpu", id="together"),
        pytest.param("memory.aliquot.io/main", "is for pods that ask for aliquot.io/gpu", id="a container's size"),
        pytest.param("modle.aliquot.io/main", "did you mean aliquot.io/model", id="a wish for a container"),
        pytest.param("model.aliquot.io/main", "did you mean aliquot.io/model", id="one that is spelt well"),
    ],
)
def test_on_pods_of_other_dialects_only_wishes_are_ours(key: str, text: str) -> None:
    with pytest.raises(BadDemand, match=f"annotation {key}.*{text}"):
        demand_of(make_pod(metadata={"annotations": {key: "1"}}), DIALECTS)


@pytest.mark.parametrize("key", ["notaliquot.io/modle", "modle", "aliquot.io.example/modle"])
def test_keys_of_others_are_left_alone(key: str) -> None:
    assert demand_of(make_pod(metadata={"annotations": {key: "1"}}), DIALECTS)


# -- what is refused

BAD: list[Any] = [
    pytest.param({"cores": "101"}, "aliquot.io/cores: '101' is not a whole percentage", id="cores beyond 100"),
    pytest.param({"cores": "-1"}, "aliquot.io/cores: '-1' is not", id="negative cores"),
    pytest.param({"cores": "half"}, "aliquot.io/cores: 'half' is not", id="cores in words"),
    pytest.param({"cores": ""}, "aliquot.io/cores: '' is not", id="no number"),
    pytest.param({"cores": "0.5"}, "aliquot.io/cores: '0.5' is not", id="a fraction of a percent"),
    pytest.param({"cores": "\u0665"}, "aliquot.io/cores: '\u0665' is not", id="an Arabic digit"),
    pytest.param({"cores": "1" * 5000}, "aliquot.io/cores: '1{64}' is not", id="five thousand digits"),
    pytest.param({"memory": "lots"}, "aliquot.io/memory: 'lots' is not a Kubernetes quantity", id="memory in words"),
    pytest.param({"memory": "-4Gi"}, "aliquot.io/memory: '-4Gi' is negative", id="negative memory"),
    pytest.param({"memory": "4096"}, "aliquot.io/memory: '4096' is less than 1 MiB", id="MiB without a suffix"),
    pytest.param({"memory": "500m"}, "aliquot.io/memory: '500m' is less than 1 MiB", id="half a byte"),
    pytest.param({"memory": "1Ei"}, "aliquot.io/memory: '1Ei' is more than any GPU has", id="absurd memory"),
    pytest.param({"memory": "9" * 30}, "aliquot.io/memory: .* is larger than any quantity", id="beyond 64 bits"),
    pytest.param({"memory": "101%"}, "aliquot.io/memory: '101%' is not a whole percentage", id="more than the card"),
    pytest.param({"memory": "2.5%"}, "aliquot.io/memory: '2.5%' is not a whole percentage", id="a broken percentage"),
    pytest.param({"memory": "%"}, "aliquot.io/memory: '%' is not a whole percentage", id="percent of what"),
    pytest.param({"cores": "0"}, "aliquot.io/cores, aliquot.io/memory: .* asks for no part", id="nothing of the card"),
    pytest.param({"sharing": "time-sliced"}, "asks for no part of a card", id="shared, but how much"),
    pytest.param({"cores-limit": "50"}, "asks for no part of a card", id="a ceiling alone"),
    pytest.param({"cores": "50", "cores-limit": "40"}, "aliquot.io/cores-limit: '40' is less", id="a ceiling too low"),
    pytest.param(
        {"memory": "2Gi", "memory-limit": "1Gi"}, "aliquot.io/memory-limit: '1Gi' is less than .* 2Gi", id="for memory"
    ),
    pytest.param(
        {"sharing": "maybe"}, "aliquot.io/sharing: 'maybe' is not one of exclusive, time-sliced, mps", id="mode"
    ),
    pytest.param(
        {"sharing": "exclusive", "cores": "5"},
        "aliquot.io/cores cannot be combined with aliquot.io/sharing",
        id="half whole",
    ),
    pytest.param(
        {"sharing": "time-sliced", "cores": "5", "slots": "2"},
        "aliquot.io/slots cannot be combined with",
        id="slots of time",
    ),
    pytest.param({"slots": "0"}, "aliquot.io/slots: '0' is not a number of MPS slots", id="no slot"),
    pytest.param({"slots": "1025"}, "aliquot.io/slots: '1025' is not a number", id="absurd slots"),
    pytest.param({"together": "yes"}, "aliquot.io/together: 'yes' is neither true nor false", id="no truth"),
    pytest.param({"model": ""}, "aliquot.io/model: '' is not a comma-separated list", id="no model"),
    pytest.param(
        {"model": "A100,,V100"}, "aliquot.io/model: 'A100,,V100' is not a comma-separated list", id="a hole in a list"
    ),
    pytest.param({"not-model": ","}, "aliquot.io/not-model: ',' is not a comma-separated list", id="no model to avoid"),
    pytest.param({"uuid": " "}, "aliquot.io/uuid: ' ' is not a comma-separated list", id="no card"),
    pytest.param({"not-uuid": ",".join(map(str, range(257)))}, "aliquot.io/not-uuid has 257 names", id="257 cards"),
    pytest.param({"mig": "large"}, "aliquot.io/mig: 'large' is neither a MIG profile", id="no profile"),
    pytest.param({"topology": "near"}, "aliquot.io/topology: 'near' is not one of any, numa, nvlink", id="no topology"),
    pytest.param({"gpu-policy": "Best!"}, "aliquot.io/gpu-policy: 'Best!' is not the name", id="no policy"),
    pytest.param({"node-policy": ""}, "aliquot.io/node-policy: '' is not a comma-separated list", id="no name"),
    pytest.param({"core": "5"}, r"annotation aliquot.io/core is unknown; did you mean aliquot.io/cores\?", id="core"),
    pytest.param({"gpu-memory": "5"}, "did you mean aliquot.io/memory", id="gpu-memory"),
    pytest.param({"numa": "true"}, "annotation aliquot.io/numa is unknown", id="unheard of"),
    pytest.param(
        {"xyzzy": "5"}, r"aliquot.io/xyzzy is unknown; known keys are aliquot.io/\{cores, memory", id="far off"
    ),
]


@pytest.mark.parametrize(("words", "text"), BAD)
def test_a_bad_annotation_is_refused_by_its_name(words: dict[str, str], text: str) -> None:
    with pytest.raises(BadDemand, match=text):
        demand_of(pod(named(words)), DIALECTS)


BAD_FOR_ONE: list[Any] = [
    pytest.param({"cores.aliquot.io/main": "x"}, "cores.aliquot.io/main: 'x' is not", id="a bad value"),
    pytest.param({"core.aliquot.io/main": "1"}, r"did you mean cores.aliquot.io/main\?", id="a word misspelt"),
    pytest.param({"model.aliquot.io/main": "T4"}, "annotation model.aliquot.io/main is unknown", id="a wish of one"),
    pytest.param(
        {"cores.aliquot.io/mian": "1"},
        r"no container mian asks for aliquot.io/gpu; did you mean cores.aliquot.io/main\?",
        id="a container misspelt",
    ),
    pytest.param(
        {"cores.aliquot.io/zzz": "1"}, r"known keys are cores.aliquot.io/\{main\}", id="a container unheard of"
    ),
]


@pytest.mark.parametrize(("annotations", "text"), BAD_FOR_ONE)
def test_a_bad_annotation_for_one_container_is_refused_by_its_name(annotations: dict[str, str], text: str) -> None:
    with pytest.raises(BadDemand, match=text):
        demand_of(pod(annotations), DIALECTS)


@pytest.mark.parametrize(
    ("cards", "text"),
    [
        pytest.param(0, f"no container of the pod asks for more than 0 of {GPU}", id="no card"),
        pytest.param("x", f"container main, limits, {GPU}: 'x' is not a Kubernetes quantity", id="a word"),
        pytest.param("-1", f"container main, limits, {GPU}: '-1' is negative", id="negative"),
        pytest.param("1025", f"container main, limits, {GPU}: 1025 is ", id="absurd"),
    ],
)
def test_a_bad_number_of_cards_is_refused(cards: Any, text: str) -> None:
    with pytest.raises(BadDemand, match=text):
        demand_of(pod(cards=cards), DIALECTS)


@pytest.mark.parametrize(
    ("words", "counts", "text"),
    [
        pytest.param(
            {"cores": "10"}, (1, 2), "must all ask for the same number of aliquot.io/gpu", id="unequal numbers"
        ),
        pytest.param({}, (1, 1), "whole cards cannot be shared", id="whole cards"),
    ],
)
def test_containers_that_cannot_share_their_cards_are_refused(
    words: dict[str, str], counts: tuple[int, int], text: str
) -> None:
    containers = [container("a", counts[0]), container("b", counts[1])]
    with pytest.raises(BadDemand, match=f"aliquot.io/together: .*{text}"):
        demand_of(pod(named(words | {"together": "true"}), containers=containers), DIALECTS)


@pytest.mark.parametrize("word", ["placement", "epoch", "woken", "observed", "inventory"])
def test_what_aliquot_writes_itself_is_known(word: str) -> None:
    assert part({f"aliquot.io/{word}": "x"}).whole


def test_annotations_of_others_are_their_own_concern() -> None:
    assert part({"example.com/core": "x", "notaliquot.io/core": "x", "aliquot.io.example.com/x": ""}).whole


def test_two_dialects_in_one_pod_are_refused() -> None:
    both = container_manifest("b", None, resources={"limits": {GPU: "1", GPU_MEM: "3"}})
    with pytest.raises(BadDemand, match="several dialects"):
        demand_of(make_pod(containers=[both]), DIALECTS)


# -- another prefix


def test_a_cluster_may_choose_another_prefix() -> None:
    dialects = make_dialects({"aliquot": "gpu.example.com"})
    limits = {"resources": {"limits": {"gpu.example.com/gpu": "1"}}}
    annotations = {"gpu.example.com/cores": "5", "memory.gpu.example.com/main": "1Gi", "gpu.example.com/mig": "any"}
    asking = make_pod(
        containers=[container_manifest(gpu_mem=None) | limits],
        metadata={"annotations": annotations | {PLACEMENT: "x", "aliquot.io/unheard-of": "x"}},
    )
    demand = demand_of(asking, dialects)
    assert demand is not None
    (asked,) = demand.request.containers
    assert (asked.part, demand.request.constraints.mig) == (Part(1, 5, Memory(1024)), "any")
    assert dialects["aliquot"].resource == "gpu.example.com/gpu"


# -- what is written and handed over


def placed(words: dict[str, str], *, cards: int = 1) -> tuple[Pod, Request, Placement]:
    node = make_cards(mib=(16000, 8000))
    asking = pod(named(words), cards=cards)
    request = ALIQUOT.demand(asking)
    (asked,) = request.containers
    slices = tuple(cut(asked.part, gpu, node.unit_mib) for gpu in node.gpus[:cards])
    return asking, request, Placement(node.node, "aliquot", {"main": slices})


def test_no_keys_are_written_beside_our_record() -> None:
    asking, request, placement = placed({"cores": "5"})
    assert ALIQUOT.annotations(asking, request, placement, make_cards(), 0) == {}
    assert ALIQUOT.labels(asking, request, placement, make_cards()) == {}
    assert ALIQUOT.placement_keys == ()
    assert ALIQUOT.read_back(pod(), make_cards()) is None


def test_a_container_finds_what_it_has_of_each_of_its_cards() -> None:
    asking, request, placement = placed({"cores": "30", "memory": "25%"}, cards=2)
    assert ALIQUOT.environment(asking, request, "main", placement, make_cards()) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-n1-0,GPU-n1-1",
        "ALIQUOT_CORES": "30,30",
        "ALIQUOT_MEMORY_MIB": "4000,2000",
    }


def test_every_card_has_sixty_four_ids() -> None:
    ids = ALIQUOT.device_ids(GPU, make_cards())
    assert (len(ids), len(set(ids))) == (128, 128)
    assert ids[:2] == [("GPU-n1-0::0", "GPU-n1-0"), ("GPU-n1-0::1", "GPU-n1-0")]
    assert ids[-1] == ("GPU-n1-1::63", "GPU-n1-1")


def test_a_card_that_is_cut_into_instances_has_none_beside_theirs() -> None:
    instances = tuple(make_gpu(n, uuid=f"MIG-{n}", parent="GPU-n1-0", profile="1g.5gb", mib=4864) for n in (1, 2))
    cards = make_cards(mib=(40960,))
    cut_up = type(cards)(cards.node, cards.gpus + instances, cards.unit_mib)
    assert {uuid for _, uuid in ALIQUOT.device_ids(GPU, cut_up)} == {"MIG-1", "MIG-2"}


def test_the_sample_pod_is_one_that_the_dialect_takes() -> None:
    demand = demand_of(msgspec.convert(ALIQUOT.sample_pod(), Pod), DIALECTS)
    assert demand is not None
    assert demand.request.containers[0].part == Part(1, 25, Memory(4096))


# -- a pod that rewrites its annotations while it runs

REWRITTEN: list[Any] = [
    pytest.param({"cores": "1", "memory": "1Mi"}, Charge(30, 4096, shares=1), id="to less"),
    pytest.param({"cores": "x"}, Charge(30, 4096, shares=1), id="to nonsense"),
    pytest.param({"together": "x", "cores": "30", "model": ""}, Charge(30, 4096, shares=1), id="to other nonsense"),
    pytest.param({"sharing": "mps"}, Charge(30, 4096, shares=1), id="to another mode"),
    pytest.param({"cores": "60", "memory": "4Gi"}, Charge(60, 4096, shares=1), id="to more"),
    pytest.param({}, Charge(100, 15360, shares=1), id="to whole cards"),
]


@pytest.mark.parametrize(("words", "charge"), REWRITTEN)
def test_a_running_pod_holds_at_least_what_it_got(words: dict[str, str], charge: Charge) -> None:
    cards = make_cards()
    slices = (cut(part(named({"cores": "30", "memory": "4Gi"})), cards.gpus[1], cards.unit_mib),)
    record = write_placement(Placement("n1", "aliquot", {"main": slices}))
    bound = pod(named(words) | {PLACEMENT: record}, node="n1")
    request = ALIQUOT.held(bound)
    placement = placement_of(bound, Demand(ALIQUOT, request), cards)
    assert charges(placement, request) == {"GPU-n1-1": charge}


# -- everything that can be said

PERCENT = st.integers(0, 100)
SAID_PARTS = st.one_of(
    st.just(Part(whole=True)),
    st.builds(
        Part,
        cores=st.integers(1, 100),
        memory=st.one_of(st.builds(Memory, st.integers(0, 2**24)), st.builds(Memory, PERCENT, st.just(Unit.PERCENT))),
        slots=st.integers(0, 1024),
    ),
    st.builds(
        lambda cores, more, mib, more_mib: Part(
            cores=cores,
            memory=Memory(mib),
            cores_limit=min(100, cores + more),
            memory_limit=Memory(min(2**24, mib + more_mib)),
        ),
        st.integers(1, 100),
        PERCENT,
        st.integers(0, 2**24),
        st.integers(0, 2**24),
    ),
)


def text_of(memory: Memory) -> str:
    return f"{memory.amount}%" if memory.unit is Unit.PERCENT else f"{memory.amount}Mi"


def words_of(asked: Part) -> dict[str, str]:
    """A part as a user would write it."""
    if asked.whole:
        return {}
    words = {"cores": str(asked.cores), "memory": text_of(asked.memory)}
    if asked.slots:
        words["slots"] = str(asked.slots)
    if asked.cores_limit is not None:
        words["cores-limit"] = str(asked.cores_limit)
    if asked.memory_limit is not None:
        words["memory-limit"] = text_of(asked.memory_limit)
    return words


@given(st.lists(st.tuples(SAID_PARTS, st.integers(1, 64)), min_size=1, max_size=4))
def test_every_part_that_the_model_knows_can_be_said(asked: list[tuple[Part, int]]) -> None:
    annotations = {
        f"{word}.aliquot.io/c{place}": text
        for place, (wanted, _) in enumerate(asked)
        for word, text in words_of(wanted).items()
    }
    containers = [container(f"c{place}", cards) for place, (_, cards) in enumerate(asked)]
    request = ALIQUOT.demand(pod(annotations, containers=containers))
    assert [(got.part, got.part.cards) for got in request.containers] == [
        (Part(cards, w.cores, w.memory, w.whole, w.slots, w.cores_limit, w.memory_limit), cards) for w, cards in asked
    ]


WORDS = ["cores", "memory", "slots", "sharing", "model", "uuid", "mig", "topology", "gpu-policy", "cores-limit"]
KEYS = st.one_of(
    st.sampled_from([f"aliquot.io/{word}" for word in WORDS]),
    st.sampled_from(["memory.aliquot.io/main", "cores.aliquot.io/other"]),
    st.text(max_size=8).map(lambda text: f"aliquot.io/{text}"),
    st.text(max_size=20),
)


@given(st.dictionaries(KEYS, st.one_of(st.text(max_size=12), st.from_regex(r"\A[0-9]{1,4}[%kKMGi]{0,2}\Z"))), st.text())
def test_no_text_raises_anything_but_our_own_errors(annotations: dict[str, str], cards: str) -> None:
    for amount in ("1", cards):
        with contextlib.suppress(AliquotError):
            demand_of(pod(annotations, cards=amount), DIALECTS)
