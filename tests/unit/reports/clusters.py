"""Small clusters for reports: nodes and pods as the API server shows them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import NodeSeen, PodSeen, QuotasRead
from aliquot.model import Gpu, Node, NodeGpus, Pod
from aliquot.model.pending_pod import PendingPod
from aliquot.model.records import PLACEMENT, write_placement
from aliquot.reports.why_waiting import Surroundings
from tests.factories import GPU_MEM, make_gpu, make_node, make_placement, make_uid, pod_manifest


def node(name: str = "n1", *gpus: Mapping[str, Any], **fields: Any) -> tuple[NodeGpus, dict[str, Any]]:
    """A node with these cards, two T4 unless told otherwise, and further fields of its manifest."""
    made: Sequence[Gpu] = [make_gpu(index, name, **given) for index, given in enumerate(gpus or ({}, {}))]
    return NodeGpus(name, tuple(made), 1024), fields


class SmallCluster:
    def __init__(self, *nodes: tuple[NodeGpus, dict[str, Any]], quotas: str | None = None) -> None:
        self.state = ClusterState()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, list[Pod]] = {}
        self.silent: list[str] = []
        self.schedulers = ("default-scheduler",)
        self.state.apply(QuotasRead(quotas))
        for cards, fields in nodes:
            self.put(cards, **fields)

    def put(self, cards: NodeGpus, *, labels: Mapping[str, str] | None = None, **fields: Any) -> None:
        made = make_node(cards.node, cards if cards.gpus else None, **fields)
        metadata = msgspec.structs.replace(made.metadata, labels=dict(labels or {}))
        made = msgspec.structs.replace(made, metadata=metadata)
        self.nodes[cards.node] = made
        self.state.apply(NodeSeen(made))

    def hold(self, name: str, units: int, index: int = 0, *, on: str = "n1", namespace: str = "default") -> None:
        """A pod that runs on a card."""
        placed = write_placement(make_placement(self.state.cards(on), index, main=units * 1024))
        manifest = pod_manifest(
            name, units, namespace=namespace, node=on, metadata={"annotations": {PLACEMENT: placed}}
        )
        manifest["metadata"]["uid"] = make_uid()
        pod = msgspec.convert({**manifest, "status": {"phase": "Running"}}, Pod)
        self.pods.setdefault(on, []).append(pod)
        self.state.apply(PodSeen(pod))

    def around(self) -> Surroundings:
        return Surroundings(
            self.nodes,
            lambda name: self.pods.get(name, ()),
            self.silent,
            lambda pod: (pod.spec.scheduler_name or "default-scheduler") in self.schedulers,
        )


def waiting(
    units: Any = 3,
    *,
    says: str = "",
    limits: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    namespace: str = "default",
    **spec: Any,
) -> PendingPod:
    """A pod that waits; `says` is its scheduler's message."""
    resources = {"limits": limits or {GPU_MEM: str(units)}, "requests": dict(requests or {})}
    container = {"name": "main", "image": "registry.example/app:1", "resources": resources}
    manifest = pod_manifest("p", namespace=namespace, containers=[container], **spec)
    manifest["metadata"] |= {"uid": make_uid(), "annotations": dict(annotations or {})}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": says}
    return msgspec.convert(
        {**manifest, "status": {"phase": "Pending", "conditions": [condition] * bool(says)}}, PendingPod
    )
