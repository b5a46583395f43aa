"""What the books decide beyond room: quotas, policies, preemption, explanations; and pods whose cards nobody names."""

from dataclasses import replace
from typing import Any

import pytest

from aliquot.control.books import Books
from aliquot.dialects import Demand
from aliquot.errors import BadDemand
from aliquot.model import Charge, Gpu, NodeGpus, Pod, Reason
from aliquot.model.records import INVENTORY, PLACEMENT, write_inventory, write_placement
from tests.factories import make_gpu, make_node, make_pod

POOL = {"tkestack.io/gpu-pool": "public"}


def see(books: Books, *gpus: Gpu, node: str = "n1", labels: dict[str, str] | None = None) -> NodeGpus:
    cards = NodeGpus(node, gpus or (make_gpu(0, node), make_gpu(1, node)), 1024)
    metadata = {"name": node, "labels": labels or {}, "annotations": {INVENTORY: write_inventory(cards)}}
    books.see_node(make_node(node, cards, metadata=metadata))
    return cards


def demand(books: Books, *args: Any, **fields: Any) -> Demand:
    made = books.demand_of(make_pod(*args, **fields))
    assert made is not None
    return made


def claim(books: Books, *args: Any, **fields: Any) -> Demand:
    asked = demand(books, *args, **fields)
    judgement = books.judge(asked)
    node = judgement.best()
    assert node is not None
    placement = judgement.placement(node)
    assert placement is not None
    books.claim(asked.request, placement)
    return asked


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
        pytest.param('{"default": {"quota": {"A100": 8}}}', {}, Reason.OVER_QUOTA, id="a model that it does not name"),
        pytest.param('{"default": {"quota": {"T4": 1}, "pool": ["public"]}}', POOL, None, id="the right pool"),
        pytest.param('{"default": {"quota": {"T4": 1}, "pool": ["wx"]}}', POOL, Reason.WRONG_POOL, id="the wrong pool"),
    ],
)
def test_a_quota_is_held(quota: str | None, labels: dict[str, str], reason: Reason | None) -> None:
    books = Books()
    see(books, labels=labels)
    books.quotas.read(quota)
    assert books.judge(demand(books)).refusal("n1") is reason


def test_a_quota_counts_what_is_claimed_and_gives_it_back_when_the_claim_is_dropped() -> None:
    books = Books()
    see(books)
    books.quotas.read('{"default": {"memory": {"T4": "5Gi"}}}')
    first = claim(books)
    assert books.judge(demand(books)).refusal("n1") is Reason.OVER_QUOTA
    assert books.judge(first).refusal("n1") is None, "a pod's own claim counts against it"
    books.drop_claim(first.request.uid, "n1")
    assert books.judge(demand(books)).refusal("n1") is None


def test_a_claim_that_expires_is_free_again_for_cards_and_quota() -> None:
    books = Books()
    see(books)
    books.quotas.read('{"default": {"memory": {"T4": "5Gi"}}}')
    asked = demand(books)
    placement = books.judge(asked).placement("n1")
    assert placement is not None
    books.claim(asked.request, placement, until=10.0)
    assert books.expire(9.0) == []
    assert [entry.uid for entry in books.expire(10.0)] == [asked.request.uid]
    assert books.ledger.used("n1") == {}
    assert books.judge(demand(books)).refusal("n1") is None


def test_a_quota_map_that_cannot_be_read_leaves_the_last_one_in_force() -> None:
    books = Books()
    see(books)
    books.quotas.read('{"default": {"memory": {"T4": 1}}}')
    books.quotas.read('{"default": {"memory": {"T4": -1}}}')
    assert "'default', memory, 'T4': -1" in books.quotas.trouble
    assert books.judge(demand(books)).refusal("n1") is Reason.OVER_QUOTA


# -- policies


def test_a_pod_chooses_its_policies_by_annotation() -> None:
    books = Books()
    see(books)
    claim(books)
    placed = {}
    for policy in ("binpack", "spread"):
        asked = demand(books, metadata={"annotations": {"aliquot.io/gpu-policy": policy}})
        placement = books.judge(asked).placement("n1")
        assert placement is not None
        (part,) = placement.slices()
        placed[policy] = part.index
    assert placed == {"binpack": 0, "spread": 1}


@pytest.mark.parametrize("key", ["aliquot.io/gpu-policy", "aliquot.io/node-policy"])
def test_a_policy_that_is_none_is_a_bad_demand_that_names_the_annotation(key: str) -> None:
    with pytest.raises(BadDemand, match=f"{key}: 'best' is no policy; there are .*binpack"):
        Books().demand_of(make_pod(metadata={"annotations": {key: "best"}}))


# -- explanations and preemption


def test_a_demand_is_explained_with_the_numbers_and_what_would_make_it_fit() -> None:
    books = Books()
    see(books, make_gpu(0))
    claim(books, gpu_mem=10)
    told = books.explain(demand(books, "big", 6)).text()
    assert "1 node: not enough room on the node's GPUs now (the freest card has 5,120 MiB left)" in told
    assert "default/p ends" in told


def test_the_cheapest_pods_of_lower_priority_are_found() -> None:
    books = Books()
    see(books)
    for size in (8, 8, 4):
        claim(books, f"low-{size}", size)
    chosen = books.preempt(demand(books, "high", 15, priority=1))
    assert chosen is not None
    assert (chosen.node, [victim.pod for victim in chosen.victims.holders]) == ("n1", ["default/low-8"])
    assert books.preempt(demand(books, "equal", 15)) is None


# -- pods whose cards kubelet alone knows


def test_whole_cards_that_nobody_names_count_by_their_number() -> None:
    books = Books()
    see(books, *(make_gpu(index) for index in range(3)))
    books.see_pod(nvidia(2, node="n1"))
    full = Charge(100, 15360, shares=1)
    assert books.ledger.used("n1") == {"GPU-n1-0": full, "GPU-n1-1": full}
    too_many = nvidia(2, node="n1")
    for _ in range(2):  # each time that it is seen
        books.see_pod(too_many)
        assert books.ledger.oversold("n1") == ["GPU-n1-0", "GPU-n1-1"], "more than there are: no card is left to sell"
        assert books.judge(demand(books)).refusal("n1") is not None


def test_a_card_that_goes_away_under_a_pod_is_not_charged_on_the_others() -> None:
    books = Books()
    cards = see(books)
    asked = demand(books)
    placement = books.judge(asked).placement("n1")
    assert placement is not None
    running = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    annotations = {PLACEMENT: write_placement(placement), "ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
    pod = make_pod(uid=asked.request.uid, node="n1", metadata={"annotations": annotations}, status=running)
    books.see_pod(pod)
    held = books.ledger.used("n1")
    see(books, cards.gpus[1])
    books.see_pod(pod)
    assert books.ledger.used("n1") == held


def test_an_original_s_record_may_be_corrected_until_the_cards_are_handed_over() -> None:
    books = Books()
    see(books)
    for assigned, index, held in (("false", "0", 0), ("false", "1", 1), ("true", "0", 0), ("true", "1", 0)):
        annotations = {"ALIYUN_COM_GPU_MEM_IDX": index, "ALIYUN_COM_GPU_MEM_ASSIGNED": assigned}
        books.see_pod(make_pod(uid="a", node="n1", metadata={"annotations": annotations}))
        assert list(books.ledger.used("n1")) == [f"GPU-n1-{held}"]


def test_a_card_that_is_cordoned_takes_nobody_and_keeps_its_pods() -> None:
    books = Books()
    cards = see(books, make_gpu(0))
    claim(books)
    see(books, replace(cards.gpus[0], cordoned=True))
    assert books.judge(demand(books)).refusal("n1") is Reason.NOT_SELLABLE
    assert books.ledger.used("n1") == {"GPU-n1-0": Charge(0, 3072, shares=1)}


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
    books = Books()
    instances = [
        make_gpu(2 + place, uuid=f"MIG-{place}", parent="GPU-n1-1", profile=profile, mib=4864)
        for place, profile in enumerate(["1g.5gb", "1g.5gb", "2g.10gb"])
    ]
    see(books, make_gpu(0), make_gpu(1), *instances)
    asked = {"limits": {f"nvidia.com/{name}": count for name, count in limits.items()}}
    books.see_pod(make_pod(containers=[{"name": "main", "resources": asked}], node="n1"))
    assert sorted(books.ledger.used("n1")) == held
