"""Objects with defaults: a test names only what it is about, and the last write wins."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from aliquot.model import (
    Charge,
    ContainerRequest,
    Gpu,
    Life,
    Memory,
    Node,
    NodeGpus,
    Part,
    Placement,
    Pod,
    Request,
    Slice,
    Unit,
    charges,
)
from aliquot.model.records import INVENTORY, write_inventory

NODE = "n1"
GPU_MEM = "aliyun.com/gpu-mem"
GPU_COUNT = "aliyun.com/gpu-count"
T4 = 15360
"""MiB of a Tesla T4: 15 units of a GiB."""

_numbers = itertools.count(1)


def make_uid() -> str:
    """A UID that no other object of this run has."""
    return f"00000000-0000-4000-8000-{next(_numbers):012d}"


# -- values of the model


def minor_of(index: int) -> int:
    """Never the index: machines differ there, and code that mixes the two up should be seen."""
    return index + 3


def make_gpu(index: int = 0, node: str = NODE, **fields: Any) -> Gpu:
    defaults: dict[str, Any] = {
        "uuid": f"GPU-{node}-{index}",
        "index": index,
        "minor": minor_of(index),
        "model": "Tesla T4",
        "mib": T4,
    }
    return Gpu(**defaults | fields)


def make_cards(
    node: str = NODE, *, mib: Sequence[int] = (T4, T4), unit_mib: int = 1024, unhealthy: Sequence[int] = ()
) -> NodeGpus:
    gpus = (make_gpu(index, node, mib=size, healthy=index not in unhealthy) for index, size in enumerate(mib))
    return NodeGpus(node, tuple(gpus), unit_mib)


def make_request(
    *units: int, uid: str = "", unit: Unit = Unit.NODE, cores: int = 0, lives: Sequence[Life] = ()
) -> Request:
    """One container per amount; main containers unless `lives` says otherwise."""
    amounts = units or (3,)
    containers = tuple(
        ContainerRequest(
            f"c{place}", Part(cores=cores, memory=Memory(amount, unit)), lives[place] if lives else Life.MAIN
        )
        for place, amount in enumerate(amounts)
    )
    return Request(uid or make_uid(), "default/p", "gpushare", containers, together=True)


def make_placement(cards: NodeGpus, index: int = 0, **mib: int) -> Placement:
    """All containers on one card: `make_placement(cards, 1, main=3072)`."""
    gpu = cards.by_index[index]
    parts = mib or {"main": 3072}
    slices = {name: (Slice(gpu.uuid, gpu.index, gpu.minor, 0, size),) for name, size in parts.items()}
    return Placement(cards.node, "gpushare", slices)


def charge_of(placement: Placement) -> dict[str, Charge]:
    """What a placement of main containers costs."""
    return charges(placement, Request("", "", "gpushare", ()))


# -- manifests, as a user or kubelet would write them


def container_manifest(name: str = "main", gpu_mem: Any = 3, **fields: Any) -> dict[str, Any]:
    """A container that asks for units of GPU memory; None asks for none."""
    limits = {} if gpu_mem is None else {GPU_MEM: str(gpu_mem) if isinstance(gpu_mem, int) else gpu_mem}
    resources = {"resources": {"limits": limits}} if limits else {}
    return {"name": name, "image": "registry.example/app:1", **resources, **fields}


def pod_manifest(
    name: str = "p",
    gpu_mem: Any = 3,
    *,
    namespace: str = "default",
    containers: Sequence[Mapping[str, Any]] | None = None,
    node: str = "",
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod with one container, unless `containers` says otherwise."""
    bound = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **(metadata or {})},
        "spec": {"containers": containers or [container_manifest(gpu_mem=gpu_mem)], **bound, **spec},
    }


def node_manifest(
    name: str = NODE,
    cards: NodeGpus | None = None,
    *,
    capacity: Mapping[str, Any] | None = None,
    allocatable: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    ready: bool = True,
    **fields: Any,
) -> dict[str, Any]:
    """A ready node whose kubelet offers what its cards have; without cards, a node without GPUs. `allocatable` says
    where that is not the capacity."""
    inventory = {INVENTORY: write_inventory(cards)} if cards else {}
    offered = {GPU_MEM: str(sum(map(cards.units, cards.gpus))), GPU_COUNT: str(len(cards.gpus))} if cards else {}
    resources = {"cpu": "32", **offered, **(capacity or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {**inventory, **(annotations or {})}},
        "status": {
            "capacity": resources,
            "allocatable": {**resources, **(allocatable or {})},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
        **fields,
    }


# -- the same as our model reads them


def make_pod(*args: Any, status: Mapping[str, Any] | None = None, uid: str = "", **fields: Any) -> Pod:
    """As `pod_manifest`, read; with a UID of its own."""
    manifest = pod_manifest(*args, **fields)
    manifest["metadata"] = {"uid": uid or make_uid(), **manifest["metadata"]}
    return msgspec.convert({**manifest, "status": status or {"phase": "Pending"}}, Pod)


def make_node(*args: Any, **fields: Any) -> Node:
    return msgspec.convert(node_manifest(*args, **fields), Node)
