"""A small cluster that has one of everything, at a fixed time."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from aliquot.clock import rfc3339
from aliquot.kube.resources import Event, InvolvedObject, Lease, LeaseSpec, PolicyBinding, PolicyBindingSpec
from aliquot.model import Gpu, NodeGpus, Placement, Slice
from aliquot.model.admission import FENCING, FORGERY
from aliquot.model.kubernetes import Metadata
from aliquot.model.load import LOAD, CardLoad, NodeLoad, PodLoad, write_load
from aliquot.model.records import PLACEMENT, write_placement
from aliquot.reports.doctor import Facts
from aliquot.reports.objects import ClusterObjects
from aliquot.reports.scheduler_config import SchedulerConfig
from tests.factories import GPU_MEM, container_manifest, make_cards, make_gpu, make_node, make_pod

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()
A100 = 81920


def at(seconds_ago: float) -> str:
    return rfc3339(int((NOW - seconds_ago) * 1e9))


def placed(name: str, node: str, units: int, *indexes: int, namespace: str = "default", age: float = 3600) -> Any:
    """A running pod of gpushare that holds units on cards of a node."""
    cards = NODES[node]
    slices = tuple(
        Slice(card.uuid, card.index, card.minor, 0, units * 1024 // len(indexes))
        for card in (cards.by_index[index] for index in indexes)
    )
    record = write_placement(Placement(node, "gpushare", {"main": slices}))
    labels = {"labels": {"aliyun.com/gpu-count": str(len(indexes))}} if len(indexes) > 1 else {}
    metadata = {"annotations": {PLACEMENT: record}, "creationTimestamp": at(age), **labels}
    status = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    return make_pod(name, units, uid=f"uid-{name}", namespace=namespace, node=node, metadata=metadata, status=status)


def waiting(
    name: str, units: int, *, resource: str = GPU_MEM, namespace: str = "default", age: float = 600, **fields: Any
) -> Any:
    metadata = {"creationTimestamp": at(age)}
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 too small"}
    status = {"phase": "Pending", "conditions": [condition]}
    containers = [container_manifest(resources={"limits": {resource: str(units)}})]
    return make_pod(
        name,
        uid=f"uid-{name}",
        namespace=namespace,
        containers=containers,
        metadata=metadata,
        status=status,
        schedulerName="default-scheduler",
        **fields,
    )


def _a100(index: int) -> Gpu:
    return make_gpu(index, "gpu-2", model="NVIDIA A100-SXM4-80GB", mib=A100, healthy=index != 3)


NODES = {
    "gpu-1": make_cards("gpu-1"),
    "gpu-2": NodeGpus("gpu-2", tuple(_a100(index) for index in range(4)), 1024),
}


def lease(node: str, *, age: float = 5, load: NodeLoad | None = None) -> Lease:
    annotations = {LOAD: write_load(load)} if load else {}
    spec = LeaseSpec(holder_identity=node, lease_duration_seconds=60, renew_time=at(age))
    return Lease(metadata=Metadata(name=node, namespace="aliquot-nodes", annotations=annotations), spec=spec)


LOADS = {
    "gpu-1": NodeLoad(
        NOW - 5,
        {"GPU-gpu-1-0": CardLoad(0.42, 5 * 2**30, 61.0), "GPU-gpu-1-1": CardLoad(0.0, 0, 9.0)},
        {
            "uid-trainer": {"GPU-gpu-1-0": PodLoad(4 * 2**30, 0.4)},
            "uid-notebook": {"GPU-gpu-1-0": PodLoad(2**30, 0.02)},
        },
    )
}


def said(pod: str, reason: str, message: str, age: float, namespace: str = "default") -> Event:
    return Event(
        metadata=Metadata(name=f"{pod}.{reason}", namespace=namespace),
        involved_object=InvolvedObject("Pod", pod, namespace, f"uid-{pod}"),
        reason=reason,
        message=message,
        reporting_component="default-scheduler",
        reporting_instance="default-scheduler-1",
        last_timestamp=at(age),
    )


def cluster(**changes: Any) -> ClusterObjects:
    fields: Mapping[str, Any] = {
        "at": NOW,
        "nodes": [make_node(name, cards) for name, cards in NODES.items()] + [make_node("cpu-1")],
        "pods": [
            placed("trainer", "gpu-1", 6, 0),
            placed("notebook", "gpu-1", 3, 0, namespace="research", age=90_000),
            placed("pair", "gpu-2", 80, 0, 1, namespace="research"),
            waiting("patient", 100),
            waiting("urgent", 4, namespace="research", age=60, priority=100),
            waiting("typo", 4, resource="aliyun.com/gpu-memory"),
            make_pod("plain", None, uid="uid-plain", node="gpu-1"),
        ],
        "quotas": '{"research": {"quota": {"T4": 2, "A100": 4}, "memory": {"A100": "160Gi"}}}',
        "events": [
            said("patient", "FailedScheduling", "0/3 nodes are available: 1 Insufficient aliyun.com/gpu-mem", 590),
            said("trainer", "Scheduled", "Successfully assigned default/trainer to gpu-1", 3600),
        ],
        "leases": [lease("gpu-1", load=LOADS["gpu-1"]), lease("gpu-2", age=300)],
        **changes,
    }
    return ClusterObjects(**fields)


def facts() -> Facts:
    """What `doctor` reads besides: a server leads, a scheduler asks it, and the policies are installed."""
    spec = LeaseSpec(holder_identity="aliquot-server-1", lease_duration_seconds=15, renew_time=at(2))
    bindings = [
        PolicyBinding(metadata=Metadata(name=name), spec=PolicyBindingSpec([action]))
        for name, action in ((FENCING, "Deny"), (FORGERY, "Warn"))
    ]
    return Facts(
        server_lease=Lease(metadata=Metadata(name="aliquot-server"), spec=spec),
        schedulers=[SchedulerConfig("ConfigMap kube-system/kube-scheduler, config.yaml", {}, ())],
        policies=bindings,
    )
