"""What the cluster state decides beyond room: quotas, policies, preemption, explanations; and pods whose cards nobody
names."""

import random
from dataclasses import replace
from typing import Any

import pytest

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import NO_EFFECTS, Claimed, Effects, Expired, NodeLost, NodeSeen, PodSeen
from aliquot.control.state.opening import Opening
from aliquot.control.state.search_budget import SearchBudget
from aliquot.dialects import Demand, Dialects, standard_dialects
from aliquot.dialects.gpushare import GpuShare
from aliquot.errors import BadConfig, BadDemand, NoRoom
from aliquot.ledger import Owner
from aliquot.metrics import REGISTRY
from aliquot.model import Charge, Gpu, NodeGpus, Placement, Pod, Reason, Slice
from aliquot.model.records import INVENTORY, PLACEMENT, write_inventory, write_placement
from tests.factories import container_manifest, make_gpu, make_node, make_pod
from tests.fakes import FakeClock

POOL = {"tkestack.io/gpu-pool": "public"}


def see(
    cluster: ClusterState,
    *gpus: Gpu,
    node: str = "n1",
    labels: dict[str, str] | None = None,
    capacity: dict[str, str] | None = None,
) -> NodeGpus:
    cards = NodeGpus(node, gpus or (make_gpu(0, node), make_gpu(1, node)), 1024)
    metadata = {"name": node, "labels": labels or {}, "annotations": {INVENTORY: write_inventory(cards)}}
    cluster.apply(NodeSeen(make_node(node, cards, metadata=metadata, capacity=capacity)))
    return cards


def demand(cluster: ClusterState, *args: Any, **fields: Any) -> Demand:
    made = cluster.demand_of(make_pod(*args, **fields))
    assert made is not None
    return made


def claim(cluster: ClusterState, *args: Any, **fields: Any) -> Demand:
    asked = demand(cluster, *args, **fields)
    judgement = cluster.judge(asked)
    node = judgement.best()
    assert node is not None
    placement = judgement.placement(node)
    assert placement is not None
    cluster.apply(Claimed(asked.request, placement))
    return asked


def native(name: str) -> dict[str, Any]:
    return container_manifest(name, None, resources={"limits": {"aliquot.io/gpu": "1"}})


def nvidia(count: int, **fields: Any) -> Pod:
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(count)}}}
    return make_pod(containers=[{"name": "main", **limits}], **fields)


# -- quota


@pytest.mark.parametrize(
    ("quota", "labels", "reason"),
    [
        pytest.param(None, {}, None, id="no map"),
        pytest.param('{"other": {"quota": {"T4": 0}}}', {}, None, id="a namespace without an entry is free"),
        pytest.param('{"default": {"quota": {"T4": 1}}}', {}, None, id="within the quota"),
        pytest.param('{"default": {"memory": {"T4": 3071}}}', {}, Reason.OVER_QUOTA, id="too much memory"),
        pytest.param(
            '{"default": {"quota": {"A100": 8}}}', {}, Reason.NOT_IN_QUOTA, id="a model that it does not name"
        ),
        pytest.param('{"default": {"quota": {"T4": 1}, "pool": ["public"]}}', POOL, None, id="the right pool"),
        pytest.param('{"default": {"quota": {"T4": 1}, "pool": ["wx"]}}', POOL, Reason.WRONG_POOL, id="the wrong pool"),
    ],
)
def test_a_quota_is_held(quota: str | None, labels: dict[str, str], reason: Reason | None) -> None:
    cluster = ClusterState()
    see(cluster, labels=labels)
    cluster.quotas.read(quota)
    assert cluster.judge(demand(cluster)).refusal("n1") is reason


def test_a_quota_counts_what_is_claimed_and_gives_it_back_when_the_claim_is_dropped() -> None:
    cluster = ClusterState()
    see(cluster)
    cluster.quotas.read('{"default": {"memory": {"T4": "5Gi"}}}')
    first = claim(cluster)
    assert cluster.judge(demand(cluster)).refusal("n1") is Reason.OVER_QUOTA
    assert cluster.judge(first).refusal("n1") is None, "a pod's own claim counts against it"
    cluster.drop_claim(first.request.uid, "n1")
    assert cluster.judge(demand(cluster)).refusal("n1") is None


def test_an_init_container_on_a_card_of_its_own_does_not_pass_the_quota() -> None:
    cluster = ClusterState()
    see(cluster)
    for index, cores in ((0, 40), (1, 10)):
        taken = {"aliquot.io/cores": str(cores), "aliquot.io/uuid": f"GPU-n1-{index}"}
        claim(cluster, namespace="others", containers=[native("main")], metadata={"annotations": taken})
    cluster.quotas.read('{"default": {"cores": {"T4": 80}}}')
    sizes = {"cores.aliquot.io/main": "60", "cores.aliquot.io/init": "80", "aliquot.io/gpu-policy": "binpack"}
    asked = demand(
        cluster, containers=[native("main")], initContainers=[native("init")], metadata={"annotations": sizes}
    )
    placement = cluster.judge(asked).placement("n1")
    assert placement is not None
    assert len({part.uuid for part in placement.slices()}) == 2, "the case is about two cards"
    with pytest.raises(NoRoom, match="T4: 0 of 80 % of cores used, the pod needs 140"):
        cluster.apply(Claimed(asked.request, placement))


def test_a_claim_that_expires_is_free_again_for_cards_and_quota() -> None:
    cluster = ClusterState()
    see(cluster)
    cluster.quotas.read('{"default": {"memory": {"T4": "5Gi"}}}')
    asked = demand(cluster)
    placement = cluster.judge(asked).placement("n1")
    assert placement is not None
    cluster.apply(Claimed(asked.request, placement, 10.0))
    assert cluster.apply(Expired(9.0)) == NO_EFFECTS
    freed, uid = Opening("n1", "default"), asked.request.uid
    assert cluster.apply(Expired(10.0)) == Effects(changed=True, freed=(freed,), expired=(uid,))
    assert cluster.ledger.used("n1") == {}
    assert cluster.judge(demand(cluster)).refusal("n1") is None


def test_a_quota_map_that_cannot_be_read_leaves_the_last_one_in_force() -> None:
    cluster = ClusterState()
    see(cluster)
    cluster.quotas.read('{"default": {"memory": {"T4": 1}}}')
    cluster.quotas.read('{"default": {"memory": {"T4": -1}}}')
    assert "'default', memory, 'T4': -1" in cluster.quotas.trouble
    assert cluster.judge(demand(cluster)).refusal("n1") is Reason.OVER_QUOTA


# -- policies


def test_a_pod_chooses_its_policies_by_annotation() -> None:
    cluster = ClusterState()
    see(cluster)
    claim(cluster)
    placed = {}
    for policy in ("binpack", "spread"):
        asked = demand(cluster, metadata={"annotations": {"aliquot.io/gpu-policy": policy}})
        placement = cluster.judge(asked).placement("n1")
        assert placement is not None
        (part,) = placement.slices()
        placed[policy] = part.index
    assert placed == {"binpack": 0, "spread": 1}


@pytest.mark.parametrize("key", ["aliquot.io/gpu-policy", "aliquot.io/node-policy"])
def test_a_policy_that_is_none_is_a_bad_demand_that_names_the_annotation(key: str) -> None:
    with pytest.raises(BadDemand, match=f"{key}: 'best' is not a policy; choose one of .*binpack"):
        ClusterState().demand_of(make_pod(metadata={"annotations": {key: "best"}}))


def test_a_dialect_whose_default_policy_is_none_stops_the_start() -> None:
    class Misspelt(GpuShare):
        gpu_policy = "tihgtest"

    with pytest.raises(BadConfig, match="dialect gpushare, gpu_policy: 'tihgtest' is not a policy"):
        ClusterState(Dialects({**standard_dialects(), "gpushare": Misspelt()}))


# -- explanations and preemption


def test_a_demand_is_explained_with_the_numbers_and_what_would_make_it_fit() -> None:
    cluster = ClusterState()
    see(cluster, make_gpu(0))
    claim(cluster, gpu_mem=10)
    told = cluster.explain(demand(cluster, "big", 6)).text()
    assert "1 node: not enough room on the node's GPUs now (the freest card has 5,120 MiB left)" in told
    assert "default/p ends" in told


def test_the_cheapest_pods_of_lower_priority_are_found() -> None:
    cluster = ClusterState()
    see(cluster)
    for size in (8, 8, 4):
        claim(cluster, f"low-{size}", size)
    chosen = cluster.preempt(demand(cluster, "high", 15, priority=1))
    assert chosen is not None
    assert (chosen.node, [victim.pod for victim in chosen.victims.holders]) == ("n1", ["default/low-8"])
    assert cluster.preempt(demand(cluster, "equal", 15)) is None


def crowd(cluster: ClusterState, node: str) -> str:
    """Fills the eight cards of a node with pods of all sizes; returns one of them."""
    sizes, cards = random.Random(node), NodeGpus(node, tuple(make_gpu(i, node, mib=81_920) for i in range(8)), 1024)
    cluster.totals.put_cards(cards)
    for gpu in cards.gpus:
        for part in range(8):
            uid, mib = f"{gpu.uuid}-{part}", sizes.randint(6_000, 10_000)
            placement = Placement(node, "aliquot", {"main": (Slice(gpu.uuid, gpu.index, gpu.index, 0, mib),)})
            cluster.totals.adopt(Owner(uid, f"default/{uid}", 0), placement, {gpu.uuid: Charge(0, mib, 0, 1)})
    return f"{cards.gpus[0].uuid}-0"


def four_cards(cluster: ClusterState, name: str) -> Demand:
    container = container_manifest("main", None, resources={"limits": {"aliquot.io/gpu": "4"}})
    return demand(cluster, name, containers=[container], annotations={"aliquot.io/memory": "60000Mi"}, priority=1)


def test_victims_on_all_nodes_are_sought_for_one_second_and_then_for_a_moment() -> None:
    """One container, but no end of sets of pods; a node for which it does not last is left out."""
    cluster = ClusterState(searches=SearchBudget(FakeClock()))
    proposed = {f"n{number}": [crowd(cluster, f"n{number}")] for number in range(60)}
    found, charged = [], []
    for number in range(5):
        before = spent()
        found.append(len(cluster.complete_victims(four_cards(cluster, f"high-{number}"), proposed, lambda _: True)))
        charged.append(spent() - before)
    assert all(0 < nodes < len(proposed) for nodes in found)
    assert all(0.9 <= seconds <= 1 for seconds in charged[:2])
    assert charged[3:] == [0, 0], "its namespace has no time left"


def spent() -> float:
    return REGISTRY.get_sample_value("aliquot_search_seconds_total") or 0.0


# -- pods whose cards kubelet alone knows


def test_whole_cards_that_nobody_names_count_by_their_number() -> None:
    cluster = ClusterState()
    see(cluster, *(make_gpu(index) for index in range(3)), capacity={"nvidia.com/gpu": "3"})
    cluster.apply(PodSeen(nvidia(2, node="n1")))
    full = Charge(100, 15360, shares=1)
    assert cluster.ledger.used("n1") == {"GPU-n1-0": full, "GPU-n1-1": full}
    too_many = nvidia(2, node="n1")
    for _ in range(2):  # each time that it is seen
        cluster.apply(PodSeen(too_many))
        assert cluster.ledger.oversold("n1") == ["GPU-n1-0", "GPU-n1-1"], "more than there are: no card is left to sell"
        assert cluster.judge(demand(cluster)).refusal("n1") is not None


def test_a_card_that_goes_away_under_a_pod_is_not_charged_on_the_others() -> None:
    cluster = ClusterState()
    cards = see(cluster)
    asked = demand(cluster)
    placement = cluster.judge(asked).placement("n1")
    assert placement is not None
    running = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    annotations = {PLACEMENT: write_placement(placement), "ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
    pod = make_pod(uid=asked.request.uid, node="n1", metadata={"annotations": annotations}, status=running)
    cluster.apply(PodSeen(pod))
    held = cluster.ledger.used("n1")
    see(cluster, cards.gpus[1])
    cluster.apply(PodSeen(pod))
    assert cluster.ledger.used("n1") == held


def test_an_original_s_record_may_be_corrected_until_the_cards_are_handed_over() -> None:
    cluster = ClusterState()
    see(cluster)
    for assigned, index, held in (("false", "0", 0), ("false", "1", 1), ("true", "0", 0), ("true", "1", 0)):
        annotations = {"ALIYUN_COM_GPU_MEM_IDX": index, "ALIYUN_COM_GPU_MEM_ASSIGNED": assigned}
        cluster.apply(PodSeen(make_pod(uid="a", node="n1", metadata={"annotations": annotations})))
        assert list(cluster.ledger.used("n1")) == [f"GPU-n1-{held}"]


def test_a_card_that_is_cordoned_takes_nobody_and_keeps_its_pods() -> None:
    cluster = ClusterState()
    cards = see(cluster, make_gpu(0))
    claim(cluster)
    see(cluster, replace(cards.gpus[0], cordoned=True))
    assert cluster.judge(demand(cluster)).refusal("n1") is Reason.NOT_SELLABLE
    assert cluster.ledger.used("n1") == {"GPU-n1-0": Charge(0, 3072, shares=1)}


@pytest.mark.parametrize(
    ("limits", "held"),
    [
        pytest.param({"mig-1g.5gb": "1"}, ["MIG-0"], id="an instance"),
        pytest.param({"mig-2g.10gb": "1"}, ["MIG-2"], id="one of another profile"),
        pytest.param({"gpu": "1"}, ["GPU-n1-0"], id="a card"),
        pytest.param(
            {"mig-1g.5gb": "1", "mig-2g.10gb": "1"},
            ["GPU-n1-0", "GPU-n1-1", "MIG-0", "MIG-1", "MIG-2"],
            id="two profiles: any of them",
        ),
    ],
)
def test_mig_instances_that_nobody_names_count_as_instances(limits: dict[str, str], held: list[str]) -> None:
    cluster = ClusterState()
    instances = [
        make_gpu(2 + place, uuid=f"MIG-{place}", parent="GPU-n1-1", profile=profile, mib=4864)
        for place, profile in enumerate(["1g.5gb", "1g.5gb", "2g.10gb"])
    ]
    see(cluster, make_gpu(0), make_gpu(1), *instances, capacity={"nvidia.com/gpu": "1"})
    asked = {"limits": {f"nvidia.com/{name}": count for name, count in limits.items()}}
    cluster.apply(PodSeen(make_pod(containers=[{"name": "main", "resources": asked}], node="n1")))
    assert sorted(cluster.ledger.used("n1")) == held


# -- what runs is charged, whatever its owner writes on it after the fact

FULL = Charge(100, 16384, shares=1)
RUNNING = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
ON_0 = (
    '{"v":1,"node":"n1","dialect":"%s","containers":{"main":[{"uuid":"GPU-0","index":0,"minor":0,"cores":0,"mib":1}]}}'
)
ON_BOTH = (
    '{"v":1,"node":"n1","dialect":"%s","containers":{"main":['
    '{"uuid":"GPU-0","index":0,"minor":0,"cores":100,"mib":16384},'
    '{"uuid":"GPU-1","index":1,"minor":1,"cores":100,"mib":16384}]}}'
)


def used_after_a_restart(
    limits: dict[str, str], annotations: dict[str, str], labels: dict[str, str] | None = None
) -> dict[str, Charge]:
    """What fresh cluster charge for one pod that runs, where device plugins have registered all that it asks for."""
    cluster = ClusterState()
    gpus = (make_gpu(index, uuid=f"GPU-{index}", minor=index, mib=16384, slots=10) for index in range(2))
    see(cluster, *gpus, capacity=dict.fromkeys(limits, "100"))
    metadata = {"annotations": annotations, "labels": labels or {}}
    container = {"name": "main", "resources": {"limits": limits}}
    cluster.apply(PodSeen(make_pod(containers=[container], metadata=metadata, node="n1", status=RUNNING)))
    return dict(cluster.ledger.used("n1"))


def everywhere(charge: Charge) -> dict[str, Charge]:
    return {"GPU-0": charge, "GPU-1": charge}


MEM, COUNT, CORE, BLOCKS = (
    "aliyun.com/gpu-mem",
    "aliyun.com/gpu-count",
    "tencent.com/vcuda-core",
    "tencent.com/vcuda-memory",
)
TENCENT = {CORE: "50", BLOCKS: "4"}
HAMI = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}
FOUR = Charge(0, 4096, shares=1)
REWRITTEN: list[Any] = [
    pytest.param({MEM: "4"}, {}, {}, everywhere(FOUR), id="gpushare: all keys are gone"),
    pytest.param({MEM: "4"}, {"ALIYUN_COM_GPU_MEM_ASSIGNED": "false"}, {}, everywhere(FOUR), id="gpushare: no mark"),
    pytest.param(TENCENT, {}, {}, everywhere(Charge(50, 1024, shares=1)), id="tencent: all keys are gone"),
    pytest.param(HAMI, {}, {}, everywhere(Charge(0, 3000, shares=1)), id="hami: all keys are gone"),
    pytest.param(
        HAMI, {"hami.io/bind-phase": "failed"}, {}, everywhere(Charge(0, 3000, shares=1)), id="hami: another phase"
    ),
    pytest.param(
        {COUNT: "2"}, {PLACEMENT: ON_BOTH % "gpushare"}, {COUNT: "x"}, everywhere(FULL), id="label: no number"
    ),
    pytest.param({COUNT: "2"}, {PLACEMENT: ON_BOTH % "gpushare"}, {COUNT: "1"}, everywhere(FULL), id="label: fewer"),
    pytest.param(
        {COUNT: "2"}, {PLACEMENT: ON_0 % "gpushare"}, {COUNT: "1"}, everywhere(FULL), id="and a record of one"
    ),
    pytest.param({MEM: "8"}, {PLACEMENT: "junk"}, {COUNT: "8"}, everywhere(Charge(0, 8192, shares=1)), id="divided"),
    pytest.param(
        {MEM: "8"}, {PLACEMENT: ON_0 % "gpushare"}, {COUNT: "8"}, {"GPU-0": Charge(0, 8192, shares=1)}, id="one"
    ),
    pytest.param({"nvidia.com/gpu": "1"}, {PLACEMENT: "junk"}, {}, everywhere(FULL), id="nvidia: a broken record"),
    pytest.param(
        {"aliquot.io/gpu": "1"},
        {PLACEMENT: "junk", "aliquot.io/cores": "1"},
        {},
        everywhere(FULL),
        id="aliquot: shrunk",
    ),
    pytest.param(
        {"aliquot.io/gpu": "2"}, {PLACEMENT: ON_0 % "aliquot"}, {}, everywhere(FULL), id="aliquot: one card of two"
    ),
    pytest.param(
        {"keti.com/mpsgpu": "1"}, {"GPUrequest": "1Mi"}, {}, everywhere(Charge(100, 16384, slots=10)), id="keti: shrunk"
    ),
    pytest.param(
        {MEM: "4", CORE: "50", BLOCKS: "4"}, {}, {}, everywhere(Charge(50, 5120, shares=2)), id="two dialects at once"
    ),
    pytest.param({MEM: "4", CORE: "0"}, {"ALIYUN_COM_GPU_MEM_IDX": "1"}, {}, {"GPU-1": FOUR}, id="none of the second"),
    pytest.param(
        {MEM: "4"},
        {"ALIYUN_COM_GPU_MEM_IDX": "1", PLACEMENT: ON_0 % "gpushare"},
        {},
        everywhere(FOUR),
        id="a forged one",
    ),
]


@pytest.mark.parametrize(("limits", "annotations", "labels", "used"), REWRITTEN)
def test_a_running_pod_is_never_charged_less_than_it_may_have(
    limits: dict[str, str], annotations: dict[str, str], labels: dict[str, str], used: dict[str, Charge]
) -> None:
    assert used_after_a_restart(limits, annotations, labels) == used


def test_a_mark_that_is_taken_away_does_not_make_a_record_provisional_again() -> None:
    cluster = ClusterState()
    see(cluster)
    for index in ("0", "1"):
        annotations = {"ALIYUN_COM_GPU_MEM_IDX": index, "ALIYUN_COM_GPU_MEM_ASSIGNED": "false"}
        cluster.apply(PodSeen(make_pod(uid="a", node="n1", metadata={"annotations": annotations}, status=RUNNING)))
        assert list(cluster.ledger.used("n1")) == ["GPU-n1-0"]


def test_a_claim_of_a_pod_that_comes_back_with_a_broken_record_is_kept_for_good() -> None:
    cluster = ClusterState()
    see(cluster)
    asked = demand(cluster)
    placement = cluster.judge(asked).placement("n1")
    assert placement is not None
    cluster.apply(Claimed(asked.request, placement, 10.0))
    held = cluster.ledger.used("n1")
    cluster.apply(
        PodSeen(
            make_pod(uid=asked.request.uid, node="n1", metadata={"annotations": {PLACEMENT: "junk"}}, status=RUNNING)
        )
    )
    assert cluster.is_settled(asked.request.uid, "n1")
    assert cluster.apply(Expired(10.0)) == NO_EFFECTS
    assert cluster.ledger.used("n1") == held


def test_a_node_that_names_an_absurd_capacity_has_no_cards() -> None:
    cluster = ClusterState()
    capacity = {CORE: "100", BLOCKS: "9223372036854775807"}
    cluster.apply(NodeSeen(make_node("n1", capacity=capacity)))
    assert cluster.cards("n1").gpus == ()


def test_a_demand_fits_on_a_node_or_is_refused_in_the_words_of_its_dialect() -> None:
    cluster = ClusterState()
    see(cluster, make_gpu(0))
    assert cluster.fit(demand(cluster, "p", 4), "n1").node == "n1"
    with pytest.raises(NoRoom, match="Insufficient GPU Memory in one device"):
        cluster.fit(demand(cluster, "large", 99), "n1")


# -- nodes that tell what cannot be read


HOSTILE = [
    pytest.param({}, {INVENTORY: "{"}, id="no inventory at all"),
    pytest.param(
        {},
        {INVENTORY: write_inventory(NodeGpus("n1", tuple(make_gpu(index) for index in range(4600)), 1024))},
        id="an inventory of 4,600 cards",
    ),
    pytest.param({"aliyun.com/gpu-count": "100000", "aliyun.com/gpu-mem": "800000"}, {}, id="kubelet counts 100,000"),
]


@pytest.mark.parametrize(("capacity", "annotations"), HOSTILE)
def test_a_node_whose_cards_cannot_be_read_keeps_its_last_ones_and_people_are_told(
    capacity: dict[str, str], annotations: dict[str, str]
) -> None:
    cluster = ClusterState()
    cards = see(cluster)
    cluster.apply(NodeSeen(make_node("n1", capacity=capacity, metadata={"name": "n1", "annotations": annotations})))
    assert cluster.cards("n1").gpus == cards.gpus
    (note,) = cluster.unread.notes()
    assert note.startswith("the cards of node n1 cannot be read, the last known ones are kept: ")
    see(cluster)
    assert cluster.unread.notes() == []


def test_of_many_nodes_that_cannot_be_read_a_few_are_named() -> None:
    cluster = ClusterState()
    for number in range(7):
        cluster.apply(
            NodeSeen(make_node(f"n{number}", metadata={"name": f"n{number}", "annotations": {INVENTORY: "{"}}))
        )
    *named, more = cluster.unread.notes()
    assert [note.split()[4] for note in named] == ["n0", "n1", "n2", "n3", "n4"]
    assert more == "nor those of 2 more nodes"
    for number in range(7):
        cluster.apply(NodeLost(f"n{number}"))
    assert cluster.unread.notes() == []
