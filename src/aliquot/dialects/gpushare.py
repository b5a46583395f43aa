"""gpushare: parts of one card by memory, `aliyun.com/gpu-mem`."""

from collections.abc import Mapping, Sequence
from typing import Any

from aliquot.errors import BadDemand, BadQuantity, BadRecord
from aliquot.model import (
    ContainerRequest,
    Gpu,
    Memory,
    Node,
    NodeGpus,
    Placement,
    Pod,
    Reason,
    Request,
    Slice,
    Unit,
)
from aliquot.model.kubernetes import Container
from aliquot.model.quantity import whole

GPU_MEM = "aliyun.com/gpu-mem"
GPU_COUNT = "aliyun.com/gpu-count"

IDX = "ALIYUN_COM_GPU_MEM_IDX"
DEV = "ALIYUN_COM_GPU_MEM_DEV"
POD = "ALIYUN_COM_GPU_MEM_POD"
CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"
ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"

_MOST_UNITS = 10**9
_MOST_CARDS = 1024
_GIB_UNITS_AT_MOST = 100
"""A node without an inventory counts in GiB if a card has at most this many units, else in MiB."""

_WORDS = {
    Reason.NO_CARD_FITS: "Insufficient GPU Memory in one device",
    Reason.NO_GPUS: "The node is not for GPU share, need skip",
    Reason.UNKNOWN_NODE: "node not found",
}


class GpuShare:
    name = "gpushare"
    resource = GPU_MEM
    socket = "aliyungpushare.sock"
    gpu_policy = "tightest"

    def speaks(self, pod: Pod) -> bool:
        return any(
            resource in container.limits for container, _ in pod.containers() for resource in (GPU_MEM, GPU_COUNT)
        )

    def demand(self, pod: Pod) -> Request:
        self._refuse_several_cards(pod)
        request = self.held(pod)
        if request.memory.amount > _MOST_UNITS:
            raise BadDemand(
                f"{GPU_MEM}: {request.memory.amount} is more than any GPU has; it counts the node's units "
                "(GiB unless the node says MiB): write 3, not 3Gi or 3G"
            )
        return request

    def held(self, pod: Pod) -> Request:
        containers = tuple(
            ContainerRequest(container.name, cores=0, memory=Memory(units, Unit.NODE), life=life)
            for container, life in pod.containers()
            if (units := _units(container))
        )
        if not containers:
            raise BadDemand(f"no container of the pod asks for more than 0 of {GPU_MEM}")
        return Request(pod.metadata.uid, pod.key, self.name, containers)

    def capacity(self, node: Node) -> NodeGpus | None:
        status = node.status.capacity or {}
        try:
            memory, count = (whole(str(status.get(name, 0))) for name in (GPU_MEM, GPU_COUNT))
        except BadQuantity:
            return None
        if memory == 0 or not 0 < count <= _MOST_CARDS:
            return None
        units = memory // count
        unit_mib = 1024 if units <= _GIB_UNITS_AT_MOST else 1
        name = node.metadata.name
        gpus = (Gpu(f"{name}/{index}", index, index, "unknown", units * unit_mib) for index in range(count))
        return NodeGpus(name, tuple(gpus), unit_mib)

    def read_back(self, pod: Pod, cards: NodeGpus) -> Placement | None:
        gpu = cards.by_index.get(_index(pod.metadata.annotations.get(IDX, "")))
        if gpu is None:
            return None
        slices = {
            container.name: (
                Slice(gpu.uuid, gpu.index, gpu.minor, container.cores, container.memory.mib(cards.unit_mib)),
            )
            for container in self.held(pod).containers
        }
        return Placement(cards.node, self.name, slices)

    def annotations(self, request: Request, placement: Placement, cards: NodeGpus, now_ns: int) -> Mapping[str, str]:
        gpu = _card(placement, cards)
        return {
            IDX: str(gpu.index),
            DEV: str(cards.units(gpu)),
            POD: str(request.memory.amount),
            ASSIGNED: "false",
            ASSUME_TIME: str(now_ns),
        }

    def handed_over(self, pod: Pod) -> bool:
        return pod.metadata.annotations.get(ASSIGNED) == "true"

    def hand_over_marks(self, now_ns: int) -> Mapping[str, str]:
        return {ASSIGNED: "true", ASSUME_TIME: str(now_ns)}

    def words(self, reason: Reason) -> str:
        return _WORDS[reason]

    def device_ids(self, cards: NodeGpus) -> Sequence[tuple[str, str]]:
        return [(f"{gpu.uuid}-_-{unit}", gpu.uuid) for gpu in cards.gpus for unit in range(cards.units(gpu))]

    def node_resources(self, cards: NodeGpus) -> Mapping[str, int]:
        return {GPU_COUNT: len(cards.gpus)}

    def environment(self, request: Request, container: str, placement: Placement, cards: NodeGpus) -> Mapping[str, str]:
        gpu = _card(placement, cards)
        (own,) = (c for c in request.containers if c.name == container)
        return {
            "NVIDIA_VISIBLE_DEVICES": gpu.uuid,
            IDX: str(gpu.index),
            POD: str(request.memory.amount),
            CONTAINER: str(own.memory.amount),
            DEV: str(cards.units(gpu)),
        }

    def sample_pod(self) -> Mapping[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "binpack-1", "namespace": "default", "labels": {"app": "binpack-1"}},
            "spec": {
                "containers": [
                    {
                        "name": "binpack-1",
                        "image": "docker.io/local/busybox:1",
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["sleep", "3600"],
                        "resources": {"limits": {GPU_MEM: "3"}},
                    }
                ]
            },
        }

    def _refuse_several_cards(self, pod: Pod) -> None:
        asks_count = any(GPU_COUNT in container.limits for container, _ in pod.containers())
        if asks_count or GPU_COUNT in pod.metadata.labels:
            raise BadDemand(f"{GPU_COUNT} is not served by this version of Aliquot; ask for {GPU_MEM} alone")


def _units(container: Container) -> int:
    try:
        return whole(str(container.limits.get(GPU_MEM, 0)))
    except BadQuantity as error:
        raise BadDemand(f"container {container.name}, limits, {GPU_MEM}: {error}") from error


def _index(text: str) -> int:
    """The index in an annotation; -1, which no card has, if it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def _card(placement: Placement, cards: NodeGpus) -> Gpu:
    """The one card of a placement. Raises BadRecord for a record that names none, several, or one that is gone."""
    uuids = sorted({part.uuid for part in placement.slices()})
    if len(uuids) != 1 or uuids[0] not in cards.by_uuid:
        named = ", ".join(uuids) or "none"
        raise BadRecord(f"the placement must name one card of node {cards.node}, and names {named}")
    return cards.by_uuid[uuids[0]]
