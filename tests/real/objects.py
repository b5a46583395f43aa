"""Nodes and pods that a real kube-scheduler accepts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aliquot.dialects import standard_dialects
from aliquot.model import NodeGpus
from aliquot.model.records import INVENTORY, write_inventory
from tests.factories import make_cards


def gpu_node(name: str, dialect: str, cards: NodeGpus | None = None, **labels: str) -> dict[str, Any]:
    """A node whose agent serves this dialect; without cards of its own, with two Tesla T4 of 15 GiB."""
    spoken = standard_dialects()[dialect]
    given = cards or make_cards(name)
    cut = tuple(replace(gpu, slots=spoken.slots) for gpu in given.gpus) if spoken.slots else given.gpus
    found = replace(given, gpus=cut)
    offered = {r.name: len(spoken.device_ids(r.name, found)) for r in spoken.resources if r.socket}
    return ready_node(
        name,
        {resource: count for resource, count in offered.items() if count},
        labels={f"dialect.aliquot.io/{dialect}": "true", **labels},
        annotations={INVENTORY: write_inventory(found)},
    )


def ready_node(
    name: str,
    resources: Mapping[str, object] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A node with room for pods and with these resources."""
    offered = {"cpu": "64", "memory": "512Gi", "pods": "250"}
    offered |= {key: str(value) for key, value in (resources or {}).items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def asking(
    name: str,
    limits: Mapping[str, object],
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod of one container that asks for these resources."""
    container = {
        "name": "main",
        "image": "registry.example/app:1",
        "resources": {"limits": {key: str(value) for key, value in limits.items()}},
    }
    meta = {"name": name, "namespace": namespace, "labels": dict(labels or {}), "annotations": dict(annotations or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container], **spec}}


def priority_class(name: str, value: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
