"""A cluster that is half full, and what kube-scheduler sends about it.

Of four nodes one is empty, one has no room left, and two have every second card taken.
"""

from typing import Any

import msgspec

from aliquot.model import Gpu, NodeGpus, Placement, Slice
from aliquot.model.records import INVENTORY, PLACEMENT, read_inventory, write_placement
from bench.mirroring import objects

_TAKEN_OF_FOUR = (0, objects.CARDS, objects.CARDS // 2, objects.CARDS // 2)


def nodes(count: int) -> list[dict[str, Any]]:
    """As an informer of kube-scheduler keeps them: without who wrote which field."""
    return [_trimmed(objects.node(number, 1 + number)) for number in range(count)]


def pods_on(node: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Each has one whole card; with the fields that count, and no others."""
    cards = read_inventory(node["metadata"]["name"], node["metadata"]["annotations"][INVENTORY])
    taken = cards.gpus[:: objects.CARDS // _TAKEN_OF_FOUR[number % 4]] if _TAKEN_OF_FOUR[number % 4] else ()
    return [_placed(cards, gpu, number) for gpu in taken]


def pending(number: int) -> dict[str, Any]:
    """Fits on three nodes of four."""
    pod = _trimmed(objects.pod(0, 1, 1))
    name, uid = f"next-{number}", f"a0000000-0000-4000-8000-{number:012}"
    pod["metadata"] |= {"name": name, "uid": uid, "annotations": {}}
    del pod["spec"]["nodeName"]
    pod["status"] = {"phase": "Pending", "qosClass": "Burstable"}
    return pod


def _placed(cards: NodeGpus, gpu: Gpu, number: int) -> dict[str, Any]:
    part = Slice(gpu.uuid, gpu.index, gpu.minor, 0, gpu.mib)
    record = write_placement(Placement(cards.node, "gpushare", {"main": (part,)}))
    limits = {"aliyun.com/gpu-mem": str(gpu.mib // cards.unit_mib)}
    name = f"holder-{number:05}-{gpu.index}"
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": {PLACEMENT: record}},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}], "nodeName": cards.node},
        "status": {"phase": "Running"},
    }


def _trimmed(encoded: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(encoded)
    del decoded["metadata"]["managedFields"]
    return decoded
