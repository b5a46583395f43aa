"""gpushare: parts of one card by memory, `aliyun.com/gpu-mem`."""

from collections.abc import Mapping, Sequence
from typing import Any

from aliquot.dialects.protocol import Dialect, Resource, capacity_of, card_at, card_numbers, equal_cards, limit
from aliquot.errors import BadDemand, BadRecord
from aliquot.model import (
    ContainerRequest,
    Gpu,
    Memory,
    Node,
    NodeGpus,
    Part,
    Placement,
    Pod,
    Reason,
    Request,
    Unit,
    cut,
    peak,
)

IDX = "ALIYUN_COM_GPU_MEM_IDX"
DEV = "ALIYUN_COM_GPU_MEM_DEV"
POD = "ALIYUN_COM_GPU_MEM_POD"
CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"
ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"

_MOST_UNITS = 10**9
_GIB_UNITS_AT_MOST = 100
"""A node without an inventory counts in GiB if a card has at most this many units, else in MiB."""

_WORDS = {
    Reason.NO_CARD_FITS: "Insufficient GPU Memory in one device",
    Reason.NO_GPUS: "The node is not for GPU share, need skip",
    Reason.UNKNOWN_NODE: "node not found",
}


class GpuShare(Dialect):
    name = "gpushare"
    standard_prefix = "aliyun.com"
    node_labels = {"gpushare": "true"}
    gpu_policy = "tightest"

    @property
    def gpu_mem(self) -> str:
        return f"{self.prefix}/gpu-mem"

    @property
    def gpu_count(self) -> str:
        return f"{self.prefix}/gpu-count"

    @property
    def resources(self) -> Sequence[Resource]:
        return (
            Resource(self.gpu_mem, "a node unit of memory: GiB, unless the node says MiB", "aliyungpushare.sock"),
            Resource(self.gpu_count, "a card"),
        )

    @property
    def placement_keys(self) -> Sequence[str]:
        return (IDX, DEV, POD, ASSIGNED, ASSUME_TIME)

    def demand(self, pod: Pod) -> Request:
        self._refuse_several_cards(pod)
        request = self.held(pod)
        if _units(request) > _MOST_UNITS:
            raise BadDemand(
                f"{self.gpu_mem}: {_units(request)} is more than any GPU has; it counts the node's units "
                "(GiB unless the node says MiB): write 3, not 3Gi or 3G"
            )
        return request

    def held(self, pod: Pod) -> Request:
        containers = tuple(
            ContainerRequest(container.name, Part(memory=Memory(units, Unit.NODE)), life)
            for container, life in pod.containers()
            if (units := limit(container, self.gpu_mem))
        )
        if not containers:
            raise BadDemand(f"no container of the pod asks for more than 0 of {self.gpu_mem}")
        return Request(pod.metadata.uid, pod.key, self.name, containers, together=True, priority=pod.spec.priority or 0)

    def capacity(self, node: Node) -> NodeGpus | None:
        memory, count = capacity_of(node, self.gpu_mem), capacity_of(node, self.gpu_count)
        units = memory // count if count else 0
        unit_mib = 1024 if units <= _GIB_UNITS_AT_MOST else 1
        return equal_cards(node, count, units * unit_mib, unit_mib)

    def read_back(self, pod: Pod, cards: NodeGpus) -> Placement | None:
        text = pod.metadata.annotations.get(IDX)
        if text is None:
            return None
        gpus = [card_at(IDX, index, cards) for index in card_numbers(IDX, text)]
        slices = {
            container.name: tuple(cut(container.part, gpu, cards.unit_mib) for gpu in gpus)
            for container in self.held(pod).containers
        }
        return Placement(cards.node, self.name, slices)

    def annotations(self, request: Request, placement: Placement, cards: NodeGpus, now_ns: int) -> Mapping[str, str]:
        gpu = _card(placement, cards)
        return {
            IDX: str(gpu.index),
            DEV: str(cards.units(gpu)),
            POD: str(_units(request)),
            ASSIGNED: "false",
            ASSUME_TIME: str(now_ns),
        }

    def handed_over(self, pod: Pod) -> bool:
        return pod.metadata.annotations.get(ASSIGNED) == "true"

    def hand_over_marks(self, now_ns: int) -> Mapping[str, str]:
        return {ASSIGNED: "true", ASSUME_TIME: str(now_ns)}

    def words(self, reason: Reason) -> str:
        return _WORDS.get(reason, reason.value)

    def device_ids(self, resource: str, cards: NodeGpus) -> Sequence[tuple[str, str]]:
        return [(f"{gpu.uuid}-_-{unit}", gpu.uuid) for gpu in cards.gpus for unit in range(cards.units(gpu))]

    def node_resources(self, cards: NodeGpus) -> Mapping[str, int]:
        return {self.gpu_count: len(cards.gpus)}

    def environment(self, request: Request, container: str, placement: Placement, cards: NodeGpus) -> Mapping[str, str]:
        gpu = _card(placement, cards)
        (own,) = (c for c in request.containers if c.name == container)
        return {
            "NVIDIA_VISIBLE_DEVICES": gpu.uuid,
            IDX: str(gpu.index),
            POD: str(_units(request)),
            CONTAINER: str(own.part.memory.amount),
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
                        "resources": {"limits": {self.gpu_mem: "3"}},
                    }
                ]
            },
        }

    def _refuse_several_cards(self, pod: Pod) -> None:
        asks_count = any(self.gpu_count in container.limits for container, _ in pod.containers())
        if asks_count or self.gpu_count in pod.metadata.labels:
            raise BadDemand(f"{self.gpu_count} is not served by this version of Aliquot; ask for {self.gpu_mem} alone")


def _units(request: Request) -> int:
    """What the pod holds at most, in node units."""
    return peak((container.life, container.part.memory.amount) for container in request.containers)


def _card(placement: Placement, cards: NodeGpus) -> Gpu:
    """The one card of a placement. Raises BadRecord for a record that names none, several, or one that is gone."""
    uuids = sorted({part.uuid for part in placement.slices()})
    if len(uuids) != 1 or uuids[0] not in cards.by_uuid:
        named = ", ".join(uuids) or "none"
        raise BadRecord(f"the placement must name one card of node {cards.node}, and names {named}")
    return cards.by_uuid[uuids[0]]
