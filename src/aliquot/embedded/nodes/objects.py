"""The objects that a kubelet writes: its Node, and the statuses of its pods."""

from collections.abc import Mapping
from typing import Any

_PLAIN = {"cpu": "32", "memory": "128Gi", "pods": "110"}


def node(name: str, labels: Mapping[str, str], resources: Mapping[str, int], now: str) -> dict[str, Any]:
    """A ready Node with these extended resources."""
    offered = _PLAIN | {resource: str(count) for resource, count in resources.items()}
    ready = {"type": "Ready", "status": "True", "reason": "HollowNode", "lastTransitionTime": now}
    addresses = {"InternalIP": "127.0.0.1", "Hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": [ready],
            "addresses": [{"type": kind, "address": address} for kind, address in addresses.items()],
            "nodeInfo": {
                "kubeletVersion": "v1.37.0-hollow",
                "osImage": "hollow",
                "kernelVersion": "hollow",
                "containerRuntimeVersion": "hollow://1",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


def pod_status(
    phase: str, containers: list[dict[str, Any]], now: str, *, reason: str = "", message: str = ""
) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True" if phase == "Running" else "False", "lastTransitionTime": now}
    why = {"reason": reason, "message": message} if reason else {}
    return {"phase": phase, "hostIP": "127.0.0.1", "conditions": [ready], "containerStatuses": containers, **why}


def waiting(container: str, reason: str, message: str = "") -> dict[str, Any]:
    return _container(container, {"waiting": {"reason": reason, "message": message}})


def running(container: str, container_id: str, since: str) -> dict[str, Any]:
    status = _container(container, {"running": {"startedAt": since}}, is_up=True)
    return {**status, "containerID": f"hollow://{container_id}"}


def terminated(container: str, code: int, since: str, now: str) -> dict[str, Any]:
    reason = "Error" if code else "Completed"
    ended = {"exitCode": code, "reason": reason, "startedAt": since, "finishedAt": now}
    return _container(container, {"running": None, "terminated": ended})


def _container(name: str, state: Mapping[str, Any], *, is_up: bool = False) -> dict[str, Any]:
    return {"name": name, "ready": is_up, "started": is_up, "restartCount": 0, "state": dict(state), "image": "hollow"}
