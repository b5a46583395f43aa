"""Events: what people read under `kubectl describe`."""

from datetime import UTC, datetime
from typing import Any

from aliquot.model import Pod


def about(pod: Pod, *, kind: str, reason: str, message: str, component: str, wall_ns: int) -> dict[str, Any]:
    """An Event about a pod, to be created in its namespace. `kind` is Normal or Warning."""
    moment = datetime.fromtimestamp(wall_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    meta = pod.metadata
    return {
        "apiVersion": "v1",
        "kind": "Event",
        # with the time in its name, as kube-scheduler does it: events of one second are listed in their order
        "metadata": {"name": f"{meta.name}.{wall_ns:x}", "namespace": meta.namespace},
        "involvedObject": {
            "kind": "Pod",
            "apiVersion": "v1",
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": component},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
