"""Observed nodes: another vendor's device plugin chooses the cards, and the ledger learns which."""

from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Claimed, Dropped, NodeSeen, PodForgotten, PodSeen
from aliquot.ledger import State
from aliquot.model import Charge, Gpu, NodeGpus, Pod, Reason
from aliquot.model.records import (
    EPOCH,
    INVENTORY,
    OBSERVED,
    PLACEMENT,
    write_inventory,
    write_observed,
    write_placement,
)
from tests.factories import T4, container_manifest, make_gpu, make_node, make_placement, make_pod
from tests.integration.room import Room

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
OFFERED = {GPU: "2", MIG: "2"}
WHOLE = Charge(100, T4, shares=1)


def observed(*gpus: Gpu) -> NodeGpus:
    return NodeGpus("n1", gpus or (make_gpu(0), make_gpu(1)), 1024, observed=True)


def node_event(
    cards: NodeGpus, labels: Mapping[str, str] | None = None, capacity: Mapping[str, str] = OFFERED
) -> NodeSeen:
    metadata = {"name": "n1", "labels": labels or {}, "annotations": {INVENTORY: write_inventory(cards)}}
    return NodeSeen(make_node("n1", cards, metadata=metadata, capacity=capacity))


def cluster_with(cards: NodeGpus, *pods: Pod) -> ClusterState:
    cluster = ClusterState()
    cluster.apply(node_event(cards))
    for pod in pods:
        cluster.apply(PodSeen(pod))
    return cluster


def asking(amount: int = 1, resource: str = GPU, **more: Any) -> Pod:
    """A pod that waits."""
    return make_pod(containers=[limited("main", {resource: str(amount)})], **more)


def limited(name: str, limits: Mapping[str, str], **fields: Any) -> dict[str, Any]:
    return container_manifest(name, None, resources={"limits": dict(limits)}, **fields)


def bound(amount: int = 1, resource: str = GPU, **more: Any) -> Pod:
    return asking(amount, resource, node="n1", **more)


def named(pod: Pod, *uuids: str, uid: str = "", container: str = "main") -> Pod:
    """The pod with the agent's record on it."""
    record = write_observed(uid or pod.metadata.uid, {container: uuids})
    return annotated(pod, **{OBSERVED: record})


def annotated(pod: Pod, **annotations: str) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, annotations={**pod.metadata.annotations, **annotations})
    return msgspec.structs.replace(pod, metadata=metadata)


def held(cluster: ClusterState) -> dict[str, dict[str, Charge]]:
    return {entry.uid: dict(entry.charges) for entry in cluster.ledger.entries("n1")}


def refusal(cluster: ClusterState, pod: Pod) -> Reason | None:
    demand = cluster.demand_of(pod)
    assert demand is not None
    assert cluster.refusal(demand, "n1") is cluster.judge(demand).refusal("n1")
    return cluster.refusal(demand, "n1")


# -- what is sold


@pytest.mark.parametrize("labels", [{}, {"dialect.aliquot.io/hami": "true"}, {"gpushare": "true"}])
def test_only_whole_cards_are_sold_whatever_the_labels_say(labels: dict[str, str]) -> None:
    cluster = ClusterState()
    cluster.apply(node_event(observed(), labels))
    assert refusal(cluster, asking(2)) is None
    assert refusal(cluster, make_pod(gpu_mem=1)) is Reason.NOT_SERVED
    part = make_pod(containers=[limited("main", {GPU: "1", "nvidia.com/gpumem": "1000"})])
    assert refusal(cluster, part) is Reason.NOT_SERVED


A10 = make_gpu(1, model="NVIDIA A10")
PROMISES: list[Any] = [
    pytest.param((), {"nvidia.com/gpu.model": "T4"}, 1, None, id="one model"),
    pytest.param((), {"nvidia.com/gpu.model": "A10"}, 1, Reason.WRONG_MODEL, id="another model"),
    pytest.param((make_gpu(0), A10), {}, 1, None, id="any of two models"),
    pytest.param((make_gpu(0), A10), {"nvidia.com/gpu.model": "T4,A10"}, 1, None, id="either of two models"),
    pytest.param((make_gpu(0), A10), {"nvidia.com/gpu.model": "A10"}, 1, Reason.NOT_PROMISED, id="one of two models"),
    pytest.param((), {"nvidia.com/use-gpuuuid": "GPU-n1-1"}, 1, Reason.NOT_PROMISED, id="one of two cards"),
    pytest.param((), {"nvidia.com/nouse-gpuuuid": "GPU-other"}, 1, None, id="not a card of another node"),
    pytest.param((), {"nvidia.com/numa-bind": "true"}, 2, Reason.NOT_PROMISED, id="neighbours"),
    pytest.param((), {"nvidia.com/numa-bind": "true"}, 1, None, id="a single card has no neighbour"),
]


@pytest.mark.parametrize(("gpus", "annotations", "amount", "reason"), PROMISES)
def test_a_pod_is_refused_where_its_cards_cannot_be_promised(
    gpus: tuple[Gpu, ...], annotations: dict[str, str], amount: int, reason: Reason | None
) -> None:
    cluster = cluster_with(observed(*gpus))
    assert refusal(cluster, asking(amount, metadata={"annotations": annotations})) is reason


def test_the_explanation_names_the_card_that_would_do() -> None:
    cluster = cluster_with(observed(make_gpu(0), A10))
    demand = cluster.demand_of(asking(metadata={"annotations": {"nvidia.com/gpu.model": "A10"}}))
    assert demand is not None
    told = cluster.explain_node(demand, "n1").text()
    assert "another device plugin chooses the node's GPUs and cannot promise those that the pod asks for" in told
    assert "would do, but another device plugin may choose one that does not" in told


def instances() -> tuple[Gpu, ...]:
    """A card that is cut into two instances of different models' names, beside a whole card."""
    parent = make_gpu(1, model="NVIDIA A100")
    halves = (
        make_gpu(2 + half, uuid=f"MIG-{half}", model="NVIDIA A100", parent=parent.uuid, profile="1g.5gb")
        for half in (0, 1)
    )
    return (make_gpu(0), parent, *halves)


def test_the_model_of_a_card_that_is_cut_breaks_no_promise() -> None:
    cluster = cluster_with(observed(*instances()))
    assert refusal(cluster, asking(metadata={"annotations": {"nvidia.com/gpu.model": "T4"}})) is None
    assert refusal(cluster, asking(1, MIG, metadata={"annotations": {"nvidia.com/gpu.model": "A100"}})) is None


# -- what is held


def test_cards_are_held_from_the_binding_on_and_are_exact_when_they_are_named() -> None:
    pod = bound()
    cluster = cluster_with(observed(), pod)
    assert held(cluster) == {pod.metadata.uid: {"GPU-n1-0": WHOLE}}
    assert refusal(cluster, asking(2)) is Reason.NO_CARD_FITS
    cluster.apply(PodSeen(named(pod, "GPU-n1-1")))
    assert held(cluster) == {pod.metadata.uid: {"GPU-n1-1": WHOLE}}
    assert refusal(cluster, asking(1)) is None


def test_a_pod_that_is_not_named_makes_way_for_one_that_is() -> None:
    """Otherwise the card that it really has would count as free."""
    first, second = bound(uid="a"), bound(uid="b")
    cluster = cluster_with(observed(), first, second)
    assert held(cluster) == {"a": {"GPU-n1-0": WHOLE}, "b": {"GPU-n1-1": WHOLE}}
    cluster.apply(PodSeen(named(second, "GPU-n1-0")))
    assert held(cluster) == {"a": {"GPU-n1-1": WHOLE}, "b": {"GPU-n1-0": WHOLE}}
    assert cluster.ledger.oversold("n1") == []


def test_a_claim_makes_way_for_a_pod_that_is_named() -> None:
    cluster = cluster_with(observed())
    waiting = asking()
    demand = cluster.demand_of(waiting)
    assert demand is not None
    cluster.apply(Claimed(demand.request, cluster.fit(demand, "n1")))
    (claimed,) = held(cluster)[waiting.metadata.uid]
    cluster.apply(PodSeen(named(bound(uid="other"), claimed)))
    entry = cluster.ledger.entry(waiting.metadata.uid, "n1")
    assert entry is not None
    assert entry.state is State.CLAIMED
    assert (
        {part.uuid for part in entry.placement.slices()} == entry.charges.keys() == {"GPU-n1-0", "GPU-n1-1"} - {claimed}
    )
    assert refusal(cluster, asking()) is Reason.NO_CARD_FITS


def test_a_claim_on_the_last_card_that_another_pod_got_is_oversold() -> None:
    cluster = cluster_with(observed(make_gpu(0)))
    waiting = asking()
    demand = cluster.demand_of(waiting)
    assert demand is not None
    cluster.apply(Claimed(demand.request, cluster.fit(demand, "n1")))
    cluster.apply(PodSeen(bound()))
    assert cluster.ledger.oversold("n1") == ["GPU-n1-0"]
    cluster.apply(Dropped(waiting.metadata.uid, "n1"))
    assert refusal(cluster, asking()) is Reason.NO_CARD_FITS


FORGED: list[Any] = [
    pytest.param(lambda pod: named(pod, "GPU-none"), 1, id="a card that the node does not have"),
    pytest.param(lambda pod: named(pod, "GPU-n1-1", uid="other"), 1, id="the record of another pod"),
    pytest.param(lambda pod: named(pod, "GPU-n1-1"), 1, id="another card"),
    pytest.param(named, 1, id="no card"),
    pytest.param(lambda pod: annotated(pod, **{OBSERVED: "{"}), 1, id="no record"),
    pytest.param(lambda pod: named(pod, "GPU-n1-0", "GPU-n1-1"), 1, id="more cards than it asks for"),
    pytest.param(lambda pod: named(pod, "GPU-n1-0", container="other"), 1, id="a container that the pod does not have"),
    pytest.param(lambda pod: annotated(pod, **{PLACEMENT: write_placement(make_placement(observed()))}), 1, id="ours"),
]


@pytest.mark.parametrize(("forge", "free"), FORGED)
def test_a_forged_record_neither_frees_nor_takes_a_card(forge: Any, free: int) -> None:
    cluster = cluster_with(observed(), forge(bound()))
    assert refusal(cluster, asking(free + 1)) is Reason.NO_CARD_FITS
    assert not free or refusal(cluster, asking(free)) is None


def test_two_pods_that_name_the_same_card_hold_two_until_one_has_ended() -> None:
    first, second = named(bound(uid="a"), "GPU-n1-0"), named(bound(uid="b"), "GPU-n1-0")
    cluster = cluster_with(observed(make_gpu(0), make_gpu(1), make_gpu(2)), first, second)
    assert refusal(cluster, asking(2)) is Reason.NO_CARD_FITS
    assert refusal(cluster, asking(1)) is None
    cluster.apply(PodForgotten("a"))
    assert held(cluster) == {"b": {"GPU-n1-0": WHOLE}}


def test_a_pod_with_parts_of_cards_gets_whole_ones_from_the_other_plugin() -> None:
    pod = make_pod(containers=[limited("main", {GPU: "1", "nvidia.com/gpumem": "1000"})], node="n1")
    assert held(cluster_with(observed(), pod)) == {pod.metadata.uid: {"GPU-n1-0": WHOLE}}


def test_a_pod_of_another_dialect_holds_what_our_agent_gave_it_before() -> None:
    record = write_placement(make_placement(observed(), 1))
    before = make_pod(metadata={"annotations": {PLACEMENT: record}}, node="n1", uid="before")
    cluster = cluster_with(observed(), before, make_pod(node="n1", uid="never placed"))
    assert held(cluster) == {"before": {"GPU-n1-1": Charge(0, 3072, shares=1)}}
    cluster.apply(PodSeen(bound(uid="whole")))
    assert held(cluster)["whole"] == {"GPU-n1-0": WHOLE}


def test_kubelet_keeps_the_cards_of_an_init_container() -> None:
    main, init = limited("main", {GPU: "1"}), limited("init", {GPU: "2"})
    pod = named(make_pod(containers=[main], initContainers=[init], node="n1"), "GPU-n1-1")
    assert held(cluster_with(observed(), pod)) == {pod.metadata.uid: {"GPU-n1-0": WHOLE, "GPU-n1-1": WHOLE}}


def test_instances_are_held_as_cards_are() -> None:
    cluster = cluster_with(observed(*instances()), bound(1, MIG, uid="a"))
    assert held(cluster) == {"a": {"MIG-0": WHOLE}}
    cluster.apply(PodSeen(named(bound(1, MIG, uid="a"), "MIG-1")))
    assert held(cluster) == {"a": {"MIG-1": WHOLE}}
    assert refusal(cluster, asking(1)) is None
    assert refusal(cluster, asking(1, MIG)) is None
    assert refusal(cluster, asking(2, MIG)) is Reason.NO_CARD_FITS


def test_a_pod_with_cards_and_instances_may_have_each_until_they_are_named() -> None:
    limits = {GPU: "1", MIG: "1"}
    pod = make_pod(containers=[limited("main", limits)], node="n1", uid="a")
    cluster = cluster_with(observed(*instances()), pod)
    assert len(held(cluster)["a"]) == 2
    cluster.apply(PodSeen(named(pod, "GPU-n1-0", "MIG-1")))
    assert held(cluster) == {"a": {"GPU-n1-0": WHOLE, "MIG-1": WHOLE}}


def test_nobody_gives_cards_of_which_kubelet_does_not_know() -> None:
    cluster = ClusterState()
    cluster.apply(node_event(observed(), capacity={"example.com/other": "1"}))
    cluster.apply(PodSeen(bound()))
    assert held(cluster) == {}


def test_a_node_may_become_observed_and_owned_again() -> None:
    pod = named(bound(), "GPU-n1-1")
    cluster = cluster_with(observed(), pod)
    owned = NodeGpus("n1", observed().gpus, 1024)
    for cards in (owned, observed()):
        cluster.apply(node_event(cards))
        cluster.apply(PodSeen(pod))
        assert held(cluster) == {pod.metadata.uid: {"GPU-n1-1": WHOLE}}


# -- through the API server


async def test_a_binding_to_an_observed_node_names_no_card(room: Room) -> None:
    """The plugin chooses one afterwards, so a placement would be a guess."""
    await room.add_node(observed(), capacity=OFFERED)
    pod = await room.add_pod(containers=[limited("main", {GPU: "1"})])
    await room.commit(pod, "n1")
    await room.in_sync()
    shown = room.api_pod(pod)
    assert shown["spec"]["nodeName"] == "n1"
    assert not {PLACEMENT, EPOCH} & shown["metadata"].get("annotations", {}).keys()
    assert len(room.entries()) == 1


@pytest.mark.parametrize("is_named", [False, True])
async def test_a_repeated_bind_is_harmless(room: Room, is_named: bool) -> None:
    await room.add_node(observed(), capacity=OFFERED)
    pod = await room.add_pod(containers=[limited("main", {GPU: "1"})])
    await room.commit(pod, "n1")
    if is_named:
        await room.annotate(pod, **{OBSERVED: write_observed(pod.metadata.uid, {"main": ["GPU-n1-1"]})})
    await room.in_sync()
    assert (await room.commit(pod, "n1")).already
    assert len(room.entries()) == 1


async def test_nothing_is_written_on_a_pod_that_another_scheduler_bound(room: Room) -> None:
    await room.add_node(observed(), capacity=OFFERED)
    pod = await room.add_pod(containers=[limited("main", {GPU: "1"})], node="n1")
    await room.plane.late.look()
    assert room.used() == {0: 15}
    assert PLACEMENT not in room.api_pod(pod)["metadata"].get("annotations", {})


# -- any history


class Kubelet:
    """What another vendor's plugin and kubelet really do, and what the agent and users write of it."""

    def __init__(self, seed: int, cards: NodeGpus) -> None:
        self.chance = Random(seed)
        self.cards = cards
        self.cluster = cluster_with(cards)
        self.pods: dict[str, Pod] = {}
        self.given: dict[str, tuple[str, ...]] = {}
        self.claims: list[Pod] = []

    def free(self, resource: str) -> list[str]:
        taken = {uuid for uuids in self.given.values() for uuid in uuids}
        return [gpu.uuid for gpu in self.of(resource) if gpu.uuid not in taken]

    def of(self, resource: str) -> list[Gpu]:
        return [g for g in self.cards.gpus if bool(g.parent) is (resource == MIG) and g.uuid not in self.cards.parents]

    def step(self) -> None:
        self.chance.choice(
            (self.bind, self.claim, self.drop, self.start, self.start, self.name, self.forge, self.end)
        )()

    def bind(self) -> None:
        """Another scheduler goes by kubelet's count alone."""
        resource, amount = self.chance.choice((GPU, GPU, MIG)), self.chance.choice((1, 1, 2))
        if amount <= self.count_left(resource):
            self.put(bound(amount, resource))

    def claim(self) -> None:
        """Our own Binding, which is seen later or never."""
        resource, amount = self.chance.choice((GPU, GPU, MIG)), self.chance.choice((1, 2))
        pod = asking(amount, resource)
        demand = self.cluster.demand_of(pod)
        assert demand is not None
        placement = self.cluster.judge(demand).placement("n1")
        if placement is None:
            return
        assert amount <= self.count_left(resource), "sold more than kubelet has"
        self.cluster.apply(Claimed(demand.request, placement))
        if self.chance.random() < 0.6:
            spec = msgspec.structs.replace(pod.spec, node_name="n1")
            self.put(msgspec.structs.replace(pod, spec=spec))
        else:
            self.claims.append(pod)

    def drop(self) -> None:
        if self.claims:
            self.cluster.apply(Dropped(self.claims.pop().metadata.uid, "n1"))

    def start(self) -> None:
        waiting = sorted(self.pods.keys() - self.given.keys())
        if waiting:
            uid = self.chance.choice(waiting)
            resource, amount = asked(self.pods[uid])
            self.given[uid] = tuple(self.chance.sample(self.free(resource), amount))

    def name(self) -> None:
        if self.given:
            uid = self.chance.choice(sorted(self.given))
            self.put(named(self.pods[uid], *self.given[uid]))

    def forge(self) -> None:
        if self.pods:
            uid, choices = self.chance.choice(sorted(self.pods)), ["GPU-none", *self.cards.by_uuid]
            self.put(named(self.pods[uid], *self.chance.sample(choices, self.chance.randrange(3))))

    def end(self) -> None:
        if self.pods:
            uid = self.chance.choice(sorted(self.pods))
            del self.pods[uid]
            self.given.pop(uid, None)
            self.cluster.apply(PodForgotten(uid))

    def put(self, pod: Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        self.cluster.apply(PodSeen(pod))

    def count_left(self, resource: str) -> int:
        """What kubelet's counters leave to new pods."""
        return len(self.of(resource)) - sum(
            amount for kind, amount in map(asked, self.pods.values()) if kind == resource
        )

    def free_in_ledger(self, resource: str) -> int:
        used = self.cluster.ledger.used("n1")
        return sum(gpu.uuid not in used for gpu in self.of(resource))


def asked(pod: Pod) -> tuple[str, int]:
    ((resource, amount),) = pod.spec.containers[0].limits.items()
    return resource, int(str(amount))


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_any_history_sells_no_card_twice_and_ends_with_what_was_given(seed: int, steps: int) -> None:
    kubelet = Kubelet(seed, observed(*instances(), make_gpu(4), make_gpu(5)))
    for _ in range(steps):
        kubelet.step()
        for resource in (GPU, MIG):
            claimed = sum(amount for kind, amount in map(asked, kubelet.claims) if kind == resource)
            assert kubelet.free_in_ledger(resource) <= max(0, kubelet.count_left(resource) - claimed)
    while kubelet.claims:
        kubelet.drop()
    pods = list(kubelet.pods.values())
    kubelet.chance.shuffle(pods)
    assert held(cluster_with(kubelet.cards, *pods)) == held(kubelet.cluster), "a server that starts anew knows the same"
    while kubelet.pods.keys() - kubelet.given.keys():
        kubelet.start()
    for uid in kubelet.given:
        kubelet.put(named(kubelet.pods[uid], *kubelet.given[uid]))
    assert held(kubelet.cluster) == {uid: dict.fromkeys(given, WHOLE) for uid, given in kubelet.given.items()}
    assert kubelet.cluster.ledger.oversold("n1") == []
    for resource in (GPU, MIG):
        assert kubelet.free_in_ledger(resource) == kubelet.count_left(resource)
