"""One explanation: why a pod waits, on a full cluster of 5,000 nodes with eight cards and 40,000 pods of all sizes.

`explain` is what the read endpoint does, and the command once it knows the cluster: every node, every reason, and the
changes that would help. `verdict` is what the leader does for each kind of pod that waits. The benchmark `kubectl_gpu`
has the whole command.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import process_time
from typing import Any

import msgspec

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import NodeSeen, PodSeen
from aliquot.model import Gpu, Node, NodeGpus, Placement, Pod, Slice
from aliquot.model.pending_pod import PendingPod
from aliquot.model.records import INVENTORY, PLACEMENT, write_inventory, write_placement
from aliquot.reports.explained import explain_pod
from aliquot.reports.why_waiting import Surroundings, why_waiting
from bench.measuring import Row

QUICK = True
PEER = "limit: a second of CPU for an explanation, a fifth of one for a verdict"
RATIO = "ratio = ours / peer: below 1 is within the limit"

_EXPLAIN_LIMIT, _VERDICT_LIMIT = 1000.0, 200.0
_GPU_MEM = "aliyun.com/gpu-mem"
_CARDS, _UNITS = 8, 80
_ASKED: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "fragmentation": {"limits": {_GPU_MEM: "60"}},
    "no room": {"limits": {"aliyun.com/gpu-count": "8"}},
    "too large": {"limits": {_GPU_MEM: "81"}},
    "CPU": {"limits": {_GPU_MEM: "8"}, "requests": {"cpu": "1k"}},
    "typo": {"limits": {"aliyun.com/gpu-memory": "8"}},
}


def run(*, quick: bool = False) -> Iterable[Row]:
    cluster, around = _full_cluster(100 if quick else 5000)
    for case, resources in _ASKED.items():
        pod = _pod(resources)
        why_waiting(cluster, pod, around)  # brings the Fleet up to date
        told = _cpu(partial(explain_pod, cluster, pod, around, lambda _: True))
        verdict = _cpu(partial(why_waiting, cluster, pod, around))
        yield Row(f"{case}: explain", told, _EXPLAIN_LIMIT, told / _EXPLAIN_LIMIT, "ms CPU", is_limit=True)
        yield Row(f"{case}: verdict", verdict, _VERDICT_LIMIT, verdict / _VERDICT_LIMIT, "ms CPU", is_limit=True)


def _cpu(work: Callable[[], object]) -> float:
    """The least of three, in milliseconds."""
    taken = []
    for _ in range(3):
        began = process_time()
        work()
        taken.append((process_time() - began) * 1000)
    return min(taken)


def _full_cluster(count: int) -> tuple[ClusterState, Surroundings]:
    """Every card has a pod of 40 to 80 of its 80 units."""
    cluster, chance = ClusterState(), random.Random(7)
    nodes: dict[str, Node] = {}
    pods: dict[str, list[Pod]] = {}
    for number in range(count):
        name = f"n{number:04}"
        cards = NodeGpus(name, tuple(Gpu(f"GPU-{name}-{i}", i, i, "A100", _UNITS * 1024) for i in range(_CARDS)), 1024)
        nodes[name] = _node(cards)
        cluster.apply(NodeSeen(nodes[name]))
        pods[name] = [_holder(cards, index, chance.randint(_UNITS // 2, _UNITS)) for index in range(_CARDS)]
        for pod in pods[name]:
            cluster.apply(PodSeen(pod))
    return cluster, Surroundings(nodes, lambda name: pods[name], (), lambda _: True)


def _node(cards: NodeGpus) -> Node:
    offered = {_GPU_MEM: str(_CARDS * _UNITS), "aliyun.com/gpu-count": str(_CARDS), "cpu": "128", "pods": "110"}
    labels = {"dialect.aliquot.io/gpushare": "true"}
    meta = {"name": cards.node, "labels": labels, "annotations": {INVENTORY: write_inventory(cards)}}
    status = {"capacity": offered, "allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}]}
    return msgspec.convert({"metadata": meta, "status": status}, Node)


def _holder(cards: NodeGpus, index: int, units: int) -> Pod:
    name, gpu = f"{cards.node}-{index}", cards.gpus[index]
    placement = Placement(cards.node, "gpushare", {"main": (Slice(gpu.uuid, index, index, 0, units * 1024),)})
    annotations = {PLACEMENT: write_placement(placement)}
    meta = {"name": name, "namespace": f"team-{index}", "uid": name, "annotations": annotations}
    spec = _spec({"limits": {_GPU_MEM: str(units)}, "requests": {"cpu": "1"}}) | {"nodeName": cards.node}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": "Running"}}, Pod)


def _pod(resources: Mapping[str, Mapping[str, str]]) -> PendingPod:
    meta = {"name": "waits", "namespace": "team-0", "uid": "waits"}
    return msgspec.convert({"metadata": meta, "spec": _spec(resources)}, PendingPod)


def _spec(resources: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    return {"containers": [{"name": "main", "resources": resources}]}
