"""Good bodies: what schedulers send, for pods of every dialect."""

from collections.abc import Iterator
from typing import Any

from aliquot.dialects import standard_dialects
from tests.factories import make_cards, make_uid, node_manifest, pod_manifest

NODES = ("n1", "n2", "n3")


def pods() -> list[dict[str, Any]]:
    """One of every dialect, and some that ask in more than one way or for nothing."""
    samples = [dict(dialect.sample_pod()) for dialect in standard_dialects().values()]
    others = [pod_manifest("two", 3), pod_manifest("none", None), pod_manifest("large", 99)]
    return [_with_uid(pod) for pod in (*samples, *others)]


def _with_uid(pod: dict[str, Any]) -> dict[str, Any]:
    metadata = {"namespace": "default", **pod["metadata"], "uid": make_uid()}
    status = {"phase": "Pending", "nominatedNodeName": "n1", "containerStatuses": [{"name": "main", "state": {}}]}
    return {**pod, "metadata": metadata, "status": status}


def good(pod: dict[str, Any], others: list[dict[str, Any]]) -> Iterator[Any]:
    """Every kind of body about a pod, on nodes where others are."""
    metadata = pod["metadata"]
    yield {"Pod": pod, "Nodes": None, "NodeNames": list(NODES)}
    yield {"pod": pod, "nodes": {"metadata": {}, "items": [_node(name) for name in NODES[:2]]}}
    yield {
        "PodName": metadata["name"],
        "PodNamespace": metadata["namespace"],
        "PodUID": metadata["uid"],
        "Node": "n1",
    }
    uids = [{"UID": other["metadata"]["uid"]} for other in others[:2]]
    yield {"Pod": pod, "NodeNameToMetaVictims": {"n1": {"Pods": uids, "NumPDBViolations": 1}, "n2": {"Pods": None}}}
    yield {"Pod": pod, "NodeNameToVictims": {"n1": {"Pods": others[:1], "NumPDBViolations": 0}}}
    task, node = _task(pod), _volcano_node("n1", others)
    yield {"task": task, "node": node}
    yield {"task": {**task, "TaskRole": "worker"}, "node": node}
    yield {"task": task, "node": {**node, "Capability": {"MilliCPU": 1}, "GPUDevices": {}}}
    yield {"task": task, "nodes": [node, _volcano_node("n2", [])]}
    yield {"task": {**task, "Status": 2, "NodeName": "n1"}}
    yield {"task": {**task, "Status": 4, "NodeName": "n2"}}


def _node(name: str) -> dict[str, Any]:
    return node_manifest(name, make_cards(name))


def _task(pod: dict[str, Any], status: int = 1) -> dict[str, Any]:
    metadata = pod["metadata"]
    return {
        "UID": metadata["uid"],
        "Job": "default/gang",
        "Name": metadata["name"],
        "Namespace": metadata["namespace"],
        "NodeName": "",
        "Status": status,
        "InitResreq": {"MilliCPU": 100, "Memory": 1e9, "ScalarResources": {"aliyun.com/gpu-mem": 3000}},
        "Pod": pod,
    }


def _volcano_node(name: str, others: list[dict[str, Any]]) -> dict[str, Any]:
    held = zip(others, (2, 4, 64), strict=False)
    tasks = {f"default/{pod['metadata']['name']}": _task(pod, status) for pod, status in held}
    return {
        "Name": name,
        "Idle": {"MilliCPU": 32000, "Memory": 1e11, "ScalarResources": {"aliyun.com/gpu-mem": 30000}},
        "Capacity": {"MilliCPU": 32000},
        "Tasks": tasks,
    }
