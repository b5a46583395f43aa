"""What a namespace's quota leaves to a request."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine import Fleet, Judgement, judge
from aliquot.engine.card_kinds import CardKind, kind_of
from aliquot.engine.quotas.quota import QuotaCheck, check_quota
from aliquot.engine.quotas.quota_map import Quotas
from aliquot.engine.quotas.usage import Census, Usage
from aliquot.model import Charge, Constraints, ContainerRequest, Life, Memory, NodeGpus, Part, Reason, Request, Unit
from tests.factories import T4, make_gpu

M40 = 12288


def node(name: str, *models: str, label: str = "", pool: str = "", mib: int = M40, **fields: Any) -> NodeGpus:
    gpus = tuple(make_gpu(index, name, model=model, mib=mib, **fields) for index, model in enumerate(models))
    return NodeGpus(name, gpus, 1024, model=label, pool=pool)


@dataclass
class Cluster:
    """A cluster with quotas, its nodes, and who holds what."""

    quota: Mapping[str, Any] | None
    nodes: Sequence[NodeGpus]
    usage: Usage = field(default_factory=Usage)

    def hold(self, uid: str, on: int, *charges: Charge, namespace: str = "foo") -> "Cluster":
        cards = self.nodes[on]
        self.usage.add(uid, namespace, cards, {gpu.uuid: c for gpu, c in zip(cards.gpus, charges, strict=False)})
        return self

    def decide(self, *parts: Part, uid: str = "new", lives: Sequence[Life] = (), **fields: Any) -> QuotaCheck:
        quotas, census = Quotas(), Census()
        quotas.read(None if self.quota is None else json.dumps(self.quota))
        assert not quotas.trouble
        for cards in self.nodes:
            census.put(cards)
        containers = tuple(
            ContainerRequest(f"c{place}", part, life)
            for place, (part, life) in enumerate(zip(parts, lives or [Life.MAIN] * len(parts), strict=True))
        )
        request = Request(uid, "foo/p", "tencent", containers, **fields)
        return check_quota(quotas, self.usage, census, request)

    def judge(self, *parts: Part, gpu_policy: str = "binpack", **fields: Any) -> Judgement:
        fleet, decision = Fleet(), self.decide(*parts, **fields)
        for cards in self.nodes:
            fleet.put(cards, {})
        return judge(fleet, decision.request, gpu_policy, quota=decision)

    def refused(self, *parts: Part, **fields: Any) -> set[str]:
        """Models of cards that the quota refuses."""
        decision, pairs = self.decide(*parts, **fields), ((cards, gpu) for cards in self.nodes for gpu in cards.gpus)
        return {gpu.model for cards, gpu in pairs if decision.refuses_card(cards, gpu)}


def cores(percent: int, mib: int = 0) -> Part:
    return Part(cores=percent, memory=Memory(mib))


WHOLE = Part(whole=True)
FULL = Charge(100, M40, shares=1)


def by_cards(**limits: int) -> Mapping[str, Any]:
    return {"foo": {"quota": limits}}


TWO = (node("a", "Tesla M40", "Tesla M40"), node("b", "Tesla P100-PCIE-16GB"))


@pytest.mark.parametrize(
    ("quota", "banned"),
    [
        pytest.param(None, set(), id="no map: no limit"),
        pytest.param({"bar": {"quota": {"M40": 0}}}, set(), id="another namespace's entry limits nobody else"),
        pytest.param(by_cards(M40=8, P100=1), set(), id="both named and free"),
        pytest.param(by_cards(M40=8), {"Tesla P100-PCIE-16GB"}, id="a model that is not named is not allowed"),
        pytest.param(by_cards(M40=0, P100=1), {"Tesla M40"}, id="none of a model"),
        pytest.param({"foo": {}}, {"Tesla M40", "Tesla P100-PCIE-16GB"}, id="an entry that names no model allows none"),
        pytest.param({"foo": {"cores": {"M40": 99, "P100": 100}}}, {"Tesla M40"}, id="by cores"),
        pytest.param({"foo": {"memory": {"M40": "12Gi", "P100": 12287}}}, {"Tesla P100-PCIE-16GB"}, id="by memory"),
    ],
)
def test_models_that_the_quota_does_not_allow_are_banned(quota: Mapping[str, Any], banned: set[str]) -> None:
    assert Cluster(quota, TWO).refused(WHOLE) == banned


@pytest.mark.parametrize(
    ("held", "asked", "text"),
    [
        pytest.param([FULL, Charge(30, 256)], cores(70), "", id="up to the limit"),
        pytest.param([FULL, Charge(30)], cores(71), "M40: 1.30 of 2 cards used, the pod needs 0.71", id="beyond it"),
        pytest.param([FULL, FULL], WHOLE, "M40: 2 of 2 cards used, the pod needs 1", id="whole cards"),
        pytest.param([FULL, FULL], cores(0, M40 // 4), "M40: 2 of 2 cards used, the pod needs 0.25", id="memory only"),
        pytest.param([FULL, Charge(0, M40 // 2)], cores(50), "", id="a part without cores counts by its memory"),
        pytest.param(
            [FULL, Charge(0, M40 // 2)], cores(51), "M40: 1.50 of 2 cards used, the pod needs 0.51", id="and no less"
        ),
        pytest.param([FULL], replace(WHOLE, cards=2), "M40: 1 of 2 cards used, the pod needs 2", id="several cards"),
    ],
)
def test_what_is_used_and_what_is_asked_are_counted_in_cards(held: list[Charge], asked: Part, text: str) -> None:
    cluster = Cluster(by_cards(M40=2), TWO).hold("x", 0, *held)
    decision = cluster.decide(asked)
    assert decision.why(TWO[0], TWO[0].gpus[0]) == text
    assert ("Tesla M40" in cluster.refused(asked)) == bool(text)


def test_a_part_is_counted_on_the_real_card() -> None:
    """12 GiB are a whole M40 but half of a card of twice its size."""
    nodes = (node("a", "Tesla M40"), node("b", "Tesla M40 24GB", mib=2 * M40))
    quota = {"foo": {"quota": {"Tesla M40": 1}}}
    cluster = Cluster(quota, nodes).hold("x", 1, Charge(50, M40))
    assert cluster.refused(Part(memory=Memory(12, Unit.NODE))) == {"Tesla M40"}


def test_a_percent_counts_the_same_on_every_card() -> None:
    nodes = (node("a", "Tesla M40"), node("b", "Tesla M40 24GB", mib=2 * M40))
    assert Cluster(by_cards(M40=1), nodes).refused(Part(memory=Memory(100, Unit.PERCENT))) == set()


def test_mps_slots_count_as_their_share_of_the_card() -> None:
    nodes = (node("a", "Tesla T4", mib=T4, slots=4),)
    part = Part(slots=2, memory=Memory(2, Unit.SLOT))
    lines = Cluster(by_cards(T4=1), nodes).decide(part).lines(nodes[0], nodes[0].gpus[0])
    assert [line.needs for line in lines] == [Fraction(1, 2)]


def test_a_mig_instance_counts_as_its_part_of_the_card() -> None:
    card = make_gpu(0, model="NVIDIA A100-SXM4-40GB", mib=40960)
    instance = replace(card, uuid="MIG-1", index=1, mib=10240, parent=card.uuid, profile="2g.10gb")
    cards = NodeGpus("n1", (card, instance), 1024)
    cluster = Cluster(by_cards(A100=1), (cards,))
    cluster.usage.add("x", "foo", cards, {"MIG-1": Charge(100, 10240, shares=1)})
    (line,) = cluster.decide(WHOLE, constraints=Constraints(mig="2g.10gb")).lines(cards, instance)
    assert (line.used, line.needs, line.missing) == (Fraction(1, 4), Fraction(1, 4), 0)


@pytest.mark.parametrize(("life", "banned"), [(Life.MAIN, True), (Life.SIDECAR, True), (Life.INIT, False)])
def test_init_containers_count_as_max_and_the_rest_as_sum(life: Life, banned: bool) -> None:
    refused = Cluster(by_cards(M40=1), TWO).refused(cores(60), cores(60), lives=(life, Life.MAIN))
    assert ("Tesla M40" in refused) is banned


def test_what_the_pod_holds_already_is_not_counted_twice() -> None:
    cluster = Cluster(by_cards(M40=1, P100=1), TWO).hold("new", 0, FULL)
    assert cluster.refused(WHOLE, uid="new") == set()
    assert cluster.refused(WHOLE, uid="other") == {"Tesla M40"}


def test_other_namespaces_do_not_count() -> None:
    cluster = Cluster(by_cards(M40=1, P100=1), TWO).hold("x", 0, FULL, namespace="bar")
    assert cluster.refused(WHOLE) == set()


def test_a_card_that_is_gone_counts_as_a_card_of_the_nodes_label() -> None:
    cards = node("a", "Tesla M40", label="M40")
    cluster = Cluster(by_cards(M40=1), (cards,))
    cluster.usage.add("x", "foo", cards, {"GPU-gone": Charge(10, 100)})
    assert cluster.decide(cores(10)).why(cards, cards.gpus[0]) == "M40: 1 of 1 cards used, the pod needs 0.10"


@pytest.mark.parametrize(
    ("label", "model", "allowed"),
    [
        pytest.param("M40", "whatever", True, id="the label says it"),
        pytest.param("", "Tesla M40 24GB", True, id="the card's own name says it"),
        pytest.param("m40", "whatever", False, id="the label is compared exactly"),
        pytest.param("P4", "Tesla P40", False, id="another card"),
    ],
)
def test_a_quota_names_a_card_by_the_label_or_by_its_model(label: str, model: str, allowed: bool) -> None:
    cards = node("a", model, label=label)
    decision = Cluster(by_cards(M40=1), (cards,)).decide(WHOLE)
    assert (decision.refuses_card(cards, cards.gpus[0]) is None) is allowed


def test_a_model_that_only_some_labels_allow_is_refused_on_the_other_nodes() -> None:
    cluster = Cluster(by_cards(M40=1), (node("a", "X", label="M40"), node("b", "X")))
    assert cluster.judge(WHOLE).refusals(["a", "b"]) == {"b": Reason.NOT_IN_QUOTA}


def test_a_card_that_the_quota_refuses_does_not_take_its_neighbours_with_it() -> None:
    small, large = make_gpu(0, model="Tesla M40", mib=M40), make_gpu(1, model="Tesla M40", mib=2 * M40)
    cluster = Cluster({"foo": {"memory": {"M40": "12Gi"}}}, (NodeGpus("n1", (large, small), 1024),))
    placement = cluster.judge(WHOLE, gpu_policy="spread").placement("n1")
    assert placement is not None
    assert [part.uuid for part in placement.slices()] == [small.uuid]


def test_two_names_of_one_card_both_limit_it() -> None:
    cards = node("a", "Tesla M40 24GB")
    quota = by_cards(**{"M40": 8, "M40 24GB": 1})
    cluster = Cluster(quota, (cards,)).hold("x", 0, FULL)
    assert cluster.decide(WHOLE).why(cards, cards.gpus[0]) == "M40 24GB: 1 of 1 cards used, the pod needs 1"


@pytest.mark.parametrize(
    ("pools", "vetoed"),
    [
        pytest.param([], set(), id="no pools named: any node"),
        pytest.param(["public"], {"wx", "none"}, id="other pools and nodes without one"),
        pytest.param(["public", "wx"], {"none"}, id="several"),
    ],
)
def test_nodes_of_other_pools_are_refused(pools: list[str], vetoed: set[str]) -> None:
    nodes = (node("public", "M40", pool="public"), node("wx", "M40", pool="wx"), node("none", "M40"))
    cluster = Cluster({"foo": {"quota": {"M40": 9}, "pool": pools}}, nodes)
    assert cluster.judge(WHOLE).refusals(["public", "wx", "none"]) == dict.fromkeys(vetoed, Reason.WRONG_POOL)
    assert {cards.node for cards in nodes if cluster.decide(WHOLE).refuses_node(cards)} == vetoed


def test_a_quota_that_does_not_name_the_model_says_which_it_names() -> None:
    decision = Cluster(by_cards(M40=9, P4=1), TWO).decide(WHOLE)
    assert decision.why(TWO[1], TWO[1].gpus[0]) == "the quota is for M40, P4 only"


def test_instances_do_not_decide_about_whole_cards() -> None:
    card = make_gpu(0, model="A100", mib=40960)
    instance = replace(card, uuid="MIG-1", index=1, mib=10240, parent="GPU-elsewhere", profile="2g.10gb")
    cards = NodeGpus("n1", (card, instance), 1024)
    cluster = Cluster({"foo": {"memory": {"A100": 20480}}}, (cards,))
    assert cluster.judge(WHOLE).refusals(["n1"]) == {"n1": Reason.WRONG_CARD}
    assert cluster.decide(WHOLE).refuses_card(cards, card) is Reason.OVER_QUOTA


# -- the sums

GPUS = (("Tesla M40", M40), ("Tesla T4", T4), ("NVIDIA A100-SXM4-40GB", 40960))
STEP = st.tuples(
    st.sampled_from(("add", "remove")),
    st.sampled_from(("u1", "u2", "u3")),
    st.sampled_from(("foo", "bar")),
    st.integers(0, 2),
    st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 100), st.integers(0, 50000)), max_size=3),
)


def mixed(name: str, shift: int) -> NodeGpus:
    sized = (GPUS[(index + shift) % len(GPUS)] for index in range(3))
    gpus = tuple(make_gpu(index, name, model=model, mib=mib) for index, (model, mib) in enumerate(sized))
    return NodeGpus(name, gpus, 1024, model="M40" if shift else "")


NODES = tuple(mixed(f"n{shift}", shift) for shift in range(3))


def recount(held: Mapping[tuple[str, str], tuple[str, Mapping[str, Charge]]], namespace: str) -> dict[Any, Any]:
    by_node = {cards.node: cards for cards in NODES}
    sums: dict[Any, Any] = {}
    for (_, name), (owner, charges) in held.items():
        for uuid, charge in charges.items() if owner == namespace else ():
            gpu = by_node[name].by_uuid.get(uuid)
            share: Fraction = Fraction(charge.cores, 100) or (Fraction(charge.mib, gpu.mib) if gpu else Fraction(1))
            kind = kind_of(by_node[name], gpu) if gpu else (by_node[name].model, "gone")
            cards, percent, mib = sums.get(kind, (0, 0, 0))
            sums[kind] = (cards + (share if gpu else 1), percent + charge.cores, mib + charge.mib)
    return {kind: total for kind, total in sums.items() if any(total)}


@given(st.lists(STEP, max_size=25))
def test_the_sums_equal_a_recount_after_any_history(steps: list[Any]) -> None:
    usage, held = Usage(), dict[tuple[str, str], tuple[str, Mapping[str, Charge]]]()
    for action, uid, namespace, at, parts in steps:
        cards = NODES[at]
        charges = {f"GPU-{cards.node}-{index}": Charge(c, m, shares=1) for index, (c, m) in parts.items()}
        if action == "add":
            usage.add(uid, namespace, cards, charges)
            held[uid, cards.node] = (namespace, charges)
        else:
            usage.remove(uid, cards.node)
            held.pop((uid, cards.node), None)
    for namespace in ("foo", "bar"):
        counted = {
            (kind if kind.model else (kind.label, "gone")): (amount.cards(kind), amount.cores(kind), amount.mib)
            for kind, amount in usage.of(namespace).items()
        }
        assert counted == recount(held, namespace)
        others = {key: value for key, value in held.items() if key[0] != "u1"}
        assert {kind for kind in usage.of(namespace, without="u1") if kind.model} == {
            kind for kind in recount(others, namespace) if isinstance(kind, CardKind)
        }


def test_a_node_that_is_gone_leaves_the_census() -> None:
    census = Census()
    census.put(TWO[0])
    census.put(replace(TWO[0], pool="x"))
    assert census.nodes == {"x": {"a"}}
    census.remove("a")
    census.remove("a")
    assert census.nodes == {}


def test_a_pod_that_takes_nothing_leaves_the_sums_alone() -> None:
    usage = Usage()
    usage.add("idle", "foo", TWO[0], {TWO[0].gpus[0].uuid: Charge(shares=1)})
    usage.add("busy", "foo", TWO[0], {TWO[0].gpus[0].uuid: FULL})
    usage.remove("busy", "a")
    usage.remove("idle", "a")
    assert usage.of("foo") == {}


def test_what_is_counted_for_a_pod_can_be_checked() -> None:
    usage, cards = Usage(), NodeGpus("n1", (make_gpu(),), 1024)
    charges = {"GPU-n1-0": Charge(0, 1024, shares=1)}
    assert usage.counts("a", "default", cards, {})
    assert not usage.counts("a", "default", cards, charges)
    usage.add("a", "default", cards, charges)
    assert usage.counts("a", "default", cards, charges)
    assert not usage.counts("a", "other", cards, charges)
    assert not usage.counts("a", "default", cards, {})
    assert usage.is_summed_right()
    usage.remove("a", "n1")
    assert usage.is_summed_right()
