"""The cluster state under any sequence of pods in every dialect and of changes of nodes, as the cluster would show
them.

A placement is made by the engine, claimed, written on the pod in the dialect's own words, and read back. At any time
cluster that are built anew from nodes and pods must be the same. tests/integration runs it briefly, tests/soak for as
long as it is told to.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import Claimed, NodeLost, NodeSeen, PodForgotten, PodSeen
from aliquot.dialects import Demand
from aliquot.errors import BadDemand, NoRoom
from aliquot.ledger import State
from aliquot.model import Charge, Container, Host, Node, NodeGpus, Placement, Pod
from aliquot.model.records import PLACEMENT, write_placement
from aliquot.model.selling import is_oversold
from tests.factories import make_gpu, make_node, make_uid

HARDWARE: Mapping[str, NodeGpus] = {
    "even": NodeGpus("even", tuple(make_gpu(i, "even", slots=10) for i in range(3)), 1024),
    "mixed": NodeGpus(
        "mixed",
        (
            make_gpu(0, "mixed", mib=8000, slots=4),
            make_gpu(1, "mixed", mib=16276),
            make_gpu(2, "mixed", mib=40960, slots=10, model="NVIDIA A100-SXM4-40GB"),
        ),
        1024,
    ),
}


def _containers(*limits: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        {"name": f"c{place}", "resources": {"limits": {name: str(amount) for name, amount in limit.items() if amount}}}
        for place, limit in enumerate(limits)
    ]


hosts = st.builds(Host, st.integers(0, 9000), st.integers(0, 9000))


def _requests(host: Host) -> dict[str, str]:
    return {"cpu": f"{host.cpu}m", "memory": f"{host.memory}Mi"}


_NO_ANNOTATIONS: st.SearchStrategy[dict[str, str]] = st.just({})


def _pods(
    limits: dict[str, st.SearchStrategy[int]], annotations: st.SearchStrategy[dict[str, str]] = _NO_ANNOTATIONS
) -> st.SearchStrategy[Any]:
    one = st.fixed_dictionaries(limits)
    return st.tuples(
        st.lists(one, min_size=1, max_size=3).map(lambda asked: _containers(*asked)),
        annotations,
    )


_few = st.integers(1, 2)
Manifest = tuple[list[dict[str, Any]], dict[str, str]]
manifests: st.SearchStrategy[Manifest] = st.one_of(
    _pods({"aliyun.com/gpu-mem": st.integers(1, 12)}),
    _pods({"aliyun.com/gpu-mem": st.sampled_from([2, 4]), "aliyun.com/gpu-count": st.just(2)}),
    _pods({"aliyun.com/gpu-count": st.just(1)}),
    _pods({"tencent.com/vcuda-core": st.integers(1, 99), "tencent.com/vcuda-memory": st.integers(1, 40)}),
    _pods({"tencent.com/vcuda-core": st.sampled_from([100, 200])}),
    _pods({"elastic-gpu/gpu-percent": st.sampled_from([10, 33, 50, 100, 200])}),
    _pods({"elasticgpu.io/gpu-core": st.just(20), "elasticgpu.io/gpu-memory": st.integers(1, 9000)}),
    _pods(
        {"keti.com/mpsgpu": _few},
        st.fixed_dictionaries(
            {}, optional={"GPUrequest": st.sampled_from(["1Gi", "9Gi"]), "GPUlimits": st.just("9Gi")}
        ),
    ),
    _pods({"nvidia.com/gpu": _few}),
    _pods(
        {
            "nvidia.com/gpu": _few,
            "nvidia.com/gpumem": st.integers(1, 9000),
            "nvidia.com/gpucores": st.sampled_from([0, 30, 100]),
        }
    ),
    _pods(
        {"aliquot.io/gpu": _few},
        st.fixed_dictionaries(
            {},
            optional={
                "aliquot.io/cores": st.sampled_from(["0", "25", "100"]),
                "aliquot.io/memory": st.sampled_from(["1Gi", "25%", "9000Mi"]),
                "aliquot.io/model": st.sampled_from(["A100", "T4"]),
                "aliquot.io/sharing": st.sampled_from(["mps", "time-sliced"]),
            },
        ),
    ),
)


class ClusterMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = ClusterState()
        self.nodes: dict[str, NodeGpus] = {}
        self.offered: dict[str, Host] = dict.fromkeys(HARDWARE, Host(64_000, 64_000))
        self.pods: dict[str, Pod] = {}
        self.waiting: dict[str, Pod] = {}
        self.claimed: dict[str, str] = {}
        """The node of each waiting pod."""
        self.taken: dict[str, Host] = {}
        """CPU and memory of each bound or waiting pod, as it was drawn; a pod without an item requests none."""
        for cards in HARDWARE.values():
            self._show(cards)

    # -- what can happen

    @rule(asked=st.lists(st.tuples(manifests, hosts, st.booleans(), st.booleans()), min_size=1, max_size=6))
    def ask(self, asked: list[tuple[Manifest, Host, bool, bool]]) -> None:
        """Pods come. Some carry only their dialect's own words, as if its original had placed them; some are not bound
        yet."""
        for manifest, host, names_only, binds in asked:
            self._place(manifest, host, names_only=names_only, binds=binds)

    def _place(self, manifest: Manifest, host: Host, *, names_only: bool, binds: bool) -> None:
        containers, annotations = manifest
        pod = _pod([_requesting(containers[0], host), *containers[1:]], annotations)
        try:
            demand = self.cluster.demand_of(pod)
        except BadDemand:
            return
        if demand is None:
            return
        before = self._used()
        judgement = self.cluster.judge(demand)
        node = judgement.best(self.nodes)
        if node is None:
            assert all(judgement.refusal(name) for name in self.nodes), "a node neither fits nor is refused"
            return
        placement = judgement.placement(node)
        assert placement is not None, "the best node has no placement"
        self.cluster.apply(Claimed(demand.request, placement))
        self._check_claim(demand, placement, before)
        self.taken[pod.metadata.uid] = host
        if binds:
            self._bind(pod, demand, placement, names_only=names_only)
        else:
            self.waiting[pod.metadata.uid] = pod
            self.cluster.apply(PodSeen(pod))
            self.claimed[pod.metadata.uid] = node

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """A claim that is dropped leaves what was before it."""
        if self.waiting:
            uid = data.draw(st.sampled_from(sorted(self.waiting)))
            del self.waiting[uid], self.claimed[uid]
            self.cluster.apply(PodForgotten(uid))
            assert not self.cluster.ledger.nodes_of(uid)

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.pods:
            ended = _status({"phase": "Succeeded"})
            for uid in data.draw(st.sets(st.sampled_from(sorted(self.pods)), min_size=1)):
                self.cluster.apply(PodSeen(msgspec.structs.replace(self.pods.pop(uid), status=ended)))

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if self.pods:
            uid = data.draw(st.sampled_from(sorted(self.pods)))
            del self.pods[uid]
            self.cluster.apply(PodForgotten(uid))

    @rule(name=st.sampled_from(sorted(HARDWARE)), host=hosts)
    def run_a_pod_without_gpu(self, name: str, host: Host) -> None:
        pod = _bound(_pod([_requesting({"name": "main"}, host)], {}), name, {})
        self.pods[pod.metadata.uid], self.taken[pod.metadata.uid] = pod, host
        self.cluster.apply(PodSeen(pod))

    @rule(data=st.data(), host=hosts)
    def resize(self, data: st.DataObject, host: Host) -> None:
        """A pod's requests change in place, or it is only shown once more."""
        if self.pods:
            uid = data.draw(st.sampled_from(sorted(self.pods)))
            first, *others = self.pods[uid].spec.containers
            changed = _requesting(msgspec.to_builtins(first), host)
            spec = msgspec.structs.replace(
                self.pods[uid].spec, containers=[msgspec.convert(changed, Container), *others]
            )
            self.pods[uid], self.taken[uid] = msgspec.structs.replace(self.pods[uid], spec=spec), host
            self.cluster.apply(PodSeen(self.pods[uid]))

    @rule(name=st.sampled_from(sorted(HARDWARE)), host=hosts)
    def change_what_a_node_offers(self, name: str, host: Host) -> None:
        self.offered[name] = host
        if name in self.nodes:
            self._show(self.nodes[name])

    @rule(name=st.sampled_from(sorted(HARDWARE)), card=st.integers(0, 2), healthy=st.booleans(), cordoned=st.booleans())
    def change_a_card(self, name: str, card: int, healthy: bool, cordoned: bool) -> None:
        gpus = list(HARDWARE[name].gpus)
        gpus[card] = replace(gpus[card], healthy=healthy, cordoned=cordoned)
        self._show(replace(HARDWARE[name], gpus=tuple(gpus)))

    @rule(name=st.sampled_from(sorted(HARDWARE)))
    def lose_the_last_card(self, name: str) -> None:
        self._show(replace(HARDWARE[name], gpus=HARDWARE[name].gpus[:-1]))

    @rule(name=st.sampled_from(sorted(HARDWARE)))
    def lose_the_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.cluster.apply(NodeLost(name))

    # -- what must always hold

    @invariant()
    def no_card_is_sold_twice(self) -> None:
        for name, cards in HARDWARE.items():
            for uuid, charge in self.cluster.ledger.used(name).items():
                assert not is_oversold(cards.by_uuid[uuid], charge), f"{uuid} is over-sold: {charge}"

    @invariant()
    def books_built_anew_from_the_cluster_are_the_same(self) -> None:
        anew = self._built_anew()
        for name, cards in self.nodes.items():
            bound = {e.uid: e for e in self.cluster.ledger.entries(name) if e.state is State.BOUND}
            again = {e.uid: e for e in anew.ledger.entries(name)}
            assert set(again) <= set(bound)
            for uid, entry in bound.items():
                # a pod whose card is gone is read again when the card is back
                if entry.charges.keys() <= cards.by_uuid.keys():
                    assert again[uid].charges == entry.charges

    @invariant()
    def what_nodes_have_left_is_what_pods_leave(self) -> None:
        """Pods that are claimed and not bound count, too. Built anew, the cluster state knows none of these."""
        bound, anew = {uid: pod.spec.node_name for uid, pod in self.pods.items()}, self._built_anew()
        for name in self.nodes:
            assert self.cluster.fleet.host(name) == self._left(name, bound | self.claimed)
            assert anew.fleet.host(name) == self._left(name, bound)

    # -- inside

    def _left(self, node: str, node_of: Mapping[str, str]) -> Host:
        pods = [self.taken.get(uid, Host()) for uid, name in node_of.items() if name == node]
        offered = self.offered[node]
        return Host(
            max(0, offered.cpu - sum(pod.cpu for pod in pods)),
            max(0, offered.memory - sum(pod.memory for pod in pods)),
        )

    def _built_anew(self) -> ClusterState:
        anew = ClusterState()
        for cards in reversed(self.nodes.values()):
            anew.apply(NodeSeen(self._node(cards)))
        for pod in reversed(self.pods.values()):
            anew.apply(PodSeen(pod))
        return anew

    def _node(self, cards: NodeGpus) -> Node:
        return make_node(cards.node, cards, allocatable=_requests(self.offered[cards.node]))

    def _show(self, cards: NodeGpus) -> None:
        self.nodes[cards.node] = cards
        self.cluster.apply(NodeSeen(self._node(cards)))
        for pod in self.pods.values():
            if pod.spec.node_name == cards.node:
                self.cluster.apply(PodSeen(pod))

    def _used(self) -> dict[str, dict[str, Charge]]:
        return {name: dict(self.cluster.ledger.used(name)) for name in HARDWARE}

    def _check_claim(self, demand: Demand, placement: Placement, before: dict[str, dict[str, Charge]]) -> None:
        cards = self.nodes[placement.node]
        for container in demand.request.containers:
            parts = placement.containers[container.name]
            assert len({part.uuid for part in parts}) == container.part.cards
            assert all(cards.sells(cards.by_uuid[part.uuid]) for part in parts), "sold what is not for sale"
        uid = demand.request.uid
        self.cluster.drop_claim(uid, placement.node)
        assert self._used() == before, "a claim that was dropped left something"
        self.cluster.apply(Claimed(demand.request, placement))

    def _bind(self, pod: Pod, demand: Demand, placement: Placement, *, names_only: bool) -> None:
        cards = self.nodes[placement.node]
        own = dict(demand.dialect.annotations(pod, demand.request, placement, cards, 1))
        try:
            alone = names_only and demand.dialect.read_back(_bound(pod, placement.node, own), cards) is not None
        except NoRoom:
            alone = False
        record = {} if alone else {PLACEMENT: write_placement(placement)}
        bound = _bound(pod, placement.node, own | record)
        self.pods[pod.metadata.uid] = bound
        held = self.cluster.ledger.used(placement.node)
        self.cluster.apply(PodSeen(bound))
        assert self.cluster.ledger.used(placement.node) == held, "what was written is not what was claimed"


def _requesting(container: dict[str, Any], host: Host) -> dict[str, Any]:
    return {**container, "resources": {**container.get("resources", {}), "requests": _requests(host)}}


def _pod(containers: list[dict[str, Any]], annotations: dict[str, str]) -> Pod:
    uid = make_uid()
    return msgspec.convert(
        {
            "metadata": {"name": uid, "namespace": "default", "uid": uid, "annotations": annotations},
            "spec": {"containers": containers},
            "status": {"phase": "Pending"},
        },
        Pod,
    )


def _bound(pod: Pod, node: str, annotations: Mapping[str, str]) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, annotations={**pod.metadata.annotations, **annotations})
    return msgspec.structs.replace(
        pod,
        metadata=metadata,
        spec=msgspec.structs.replace(pod.spec, node_name=node),
        status=_status({"phase": "Running"}),
    )


def _status(status: dict[str, Any]) -> Any:
    return msgspec.convert({"metadata": {}, "status": status}, Pod).status
