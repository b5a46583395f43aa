"""hami: parts of one or several cards by memory and cores, `nvidia.com/gpu` with `gpumem` and `gpucores`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aliquot.dialects.hami_records import (
    ALLOCATED,
    BIND_TIME,
    CORDON,
    NODE,
    PHASE,
    REGISTER,
    SCORES,
    TIME,
    TO_ALLOCATE,
    is_handed_over,
    read_devices,
    read_register,
    write_handed_over,
    write_label,
    write_placed,
)
from aliquot.dialects.nvidia import Nvidia, check_priority, instance_ids, mig_resources, names_parts
from aliquot.dialects.protocol import (
    Dialect,
    Resource,
    advice_for_bytes,
    asks_any,
    card_called,
    cards_asked,
    limit,
    names_in,
    sample,
)
from aliquot.errors import BadDemand, BadRecord
from aliquot.model import (
    CORES,
    NO_CONSTRAINTS,
    Constraints,
    Container,
    ContainerRequest,
    Gpu,
    Memory,
    ModelConstraint,
    Node,
    NodeGpus,
    Part,
    Placement,
    Pod,
    Reason,
    Request,
    Topology,
    Unit,
)
from aliquot.model.bounds import MAX_MIB

MIG_ALLOCATIONS = "hami.io/vgpu-mig-allocations"

USE_TYPE = "nvidia.com/use-gputype"
AVOID_TYPE = "nvidia.com/nouse-gputype"
USE_UUID = "nvidia.com/use-gpuuuid"
AVOID_UUID = "nvidia.com/nouse-gpuuuid"
NUMA_BIND = "nvidia.com/numa-bind"
MODE = "nvidia.com/vgpu-mode"
NODE_POLICY = "hami.io/node-scheduler-policy"
GPU_POLICY = "hami.io/gpu-scheduler-policy"
"""Constraints. HAMi keeps these names even if its resources are renamed."""
_CONSTRAINTS = frozenset((USE_TYPE, AVOID_TYPE, USE_UUID, AVOID_UUID, NUMA_BIND, MODE, NODE_POLICY, GPU_POLICY))

SHARES = 10
"""How many device ids a card has."""
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))
_NODE_POLICIES = {"binpack": "binpack", "spread": "spread"}
_GPU_POLICIES = {**_NODE_POLICIES, "topology-aware": "topology", "numa": "topology"}

_WORDS = {
    Reason.WRONG_MODEL: "CardTypeMismatch",
    Reason.WRONG_CARD: "CardUuidMismatch",
    Reason.NOT_SELLABLE: "CardNotHealth",
    Reason.WRONG_MODE: "ModeNotFit",
    Reason.NO_TOPOLOGY: "NumaNotFit",
    Reason.NOT_IN_QUOTA: "ResourceQuotaNotFit",
    Reason.OVER_QUOTA: "ResourceQuotaNotFit",
    Reason.TOO_LARGE: "NodeInsufficientDevice",
    Reason.NO_CARD_FITS: "NodeUnfitPod",
}


@dataclass(frozen=True)
class _Asked:
    """What one container writes; None where it writes nothing."""

    cards: int
    mib: int
    percent: int
    cores: int | None


class Hami(Dialect):
    name = "hami"
    standard_prefix = "nvidia.com"
    node_policy = "binpack"
    gpu_policy = "spread"
    also_serves = "nvidia"

    # -- names

    @property
    def gpu(self) -> str:
        return f"{self.prefix}/gpu"

    @property
    def gpumem(self) -> str:
        return f"{self.prefix}/gpumem"

    @property
    def gpumem_percentage(self) -> str:
        return f"{self.prefix}/gpumem-percentage"

    @property
    def gpucores(self) -> str:
        return f"{self.prefix}/gpucores"

    @property
    def priority(self) -> str:
        return f"{self.prefix}/priority"

    @property
    def resources(self) -> Sequence[Resource]:
        return (
            Resource(self.gpu, "a part of a card; the other resources say how large", "nvidia-gpu.sock"),
            Resource(self.gpumem, "a MiB of each card", on_nodes=False),
            Resource(self.gpumem_percentage, "a percent of each card's memory", on_nodes=False),
            Resource(self.gpucores, "a percent of each card's cores", on_nodes=False),
            Resource(self.priority, "0 is high and 1 is low, among the pods that share a card", on_nodes=False),
            *(mig_resources(self.prefix) if self.prefix == Nvidia.standard_prefix else ()),
        )

    @property
    def placement_keys(self) -> Sequence[str]:
        return (NODE, TIME, TO_ALLOCATE, ALLOCATED, MIG_ALLOCATIONS, PHASE, BIND_TIME)

    @property
    def guarded_resources(self) -> Sequence[str]:
        named = (resource.name for resource in self.resources if not self._is_mig(resource.name))
        return (*named, f"{self.prefix}/mig-*")

    # -- reading

    def speaks(self, pod: Pod) -> bool:
        """Under NVIDIA's own prefix, only a pod that names parts of cards; whole cards belong to the nvidia dialect
        there."""
        is_named = self.prefix != Nvidia.standard_prefix or names_parts(pod, self.prefix)
        return is_named and asks_any(pod, self._is_ours)

    def mentions(self, pod: Pod) -> bool:
        return False  # charts write 0 for "no GPU"

    def _is_ours(self, resource: str) -> bool:
        return (resource in self.resource_names and resource != self.priority) or self._is_mig(resource)

    def _is_mig(self, resource: str) -> bool:
        return resource.startswith(f"{self.prefix}/mig-")

    def demand(self, pod: Pod) -> Request:
        for container, _ in pod.containers():
            self._check(container)
        return self.held(pod)

    def held(self, pod: Pod) -> Request:
        containers = (
            ContainerRequest(container.name, part, life)
            for container, life in pod.containers()
            if (part := _part(self._asked(container))) is not None
        )
        return self.request(pod, containers)

    def _asked(self, container: Container) -> _Asked:
        parts = (self.gpumem, self.gpumem_percentage, self.gpucores)
        is_counted = self.gpu in container.limits or not any(limit(container, part) for part in parts)
        return _Asked(
            cards_asked(container, self.gpu) if is_counted else 1,
            limit(container, self.gpumem),
            limit(container, self.gpumem_percentage),
            limit(container, self.gpucores) if self.gpucores in container.limits else None,
        )

    def _check(self, container: Container) -> None:
        """Raises BadDemand for a demand that HAMi would change silently or never start."""
        asked = self._asked(container)

        def refuse(resource: str, why: str) -> BadDemand:
            return BadDemand(f"container {container.name}, limits, {resource}: {why}")

        if mig := next((name for name in container.limits if self._is_mig(name)), ""):
            raise refuse(mig, f"MIG instances are whole; leave {self.gpumem} and {self.gpucores} out of the pod")
        if asked.mib > MAX_MIB:
            advice = advice_for_bytes(container, self.gpumem, 2**20)
            raise refuse(self.gpumem, f"{asked.mib} is more than any GPU has; it counts MiB: {advice}")
        if asked.percent > 100:
            raise refuse(self.gpumem_percentage, f"{asked.percent} is not a percentage; write 1 to 100")
        if asked.mib and asked.percent:
            raise refuse(self.gpumem_percentage, f"{self.gpumem} says how much memory; leave one of the two out")
        if asked.cores is not None and asked.cores > CORES:
            raise refuse(
                self.gpucores,
                f"{asked.cores} is more than a card has; write 1 to 100, and ask for more cards with {self.gpu}",
            )
        if not asked.cards and (asked.mib or asked.percent or asked.cores):
            raise refuse(
                self.gpu,
                "0 cards, but a part of each; write 1, or leave the other fields out",
            )
        check_priority(container, self.priority)
        parts = (self.gpumem, self.gpumem_percentage, self.gpucores)
        if self.gpu not in container.limits and (part := next((p for p in parts if limit(container, p)), "")):
            raise refuse(part, f"kubelet only hands out {self.gpu}; also write {self.gpu}: 1")

    def constraints(self, pod: Pod) -> Constraints:
        written = pod.metadata.annotations
        if _CONSTRAINTS.isdisjoint(written):
            return NO_CONSTRAINTS
        _refuse_modes(written)
        use, avoid = (tuple(map(_as_nvml, _words(written, key))) for key in (USE_TYPE, AVOID_TYPE))
        models = (ModelConstraint(use, substring=True), ModelConstraint(avoid, avoid=True, substring=True))
        return Constraints(
            models=tuple(model for model in models if model.names),
            only_uuids=frozenset(uuids) if (uuids := _words(written, USE_UUID)) else None,
            not_uuids=frozenset(_words(written, AVOID_UUID)),
            topology=Topology.NUMA if _is_true(written, NUMA_BIND) else Topology.ANY,
            node_policy=_policy(written, NODE_POLICY, _NODE_POLICIES),
            gpu_policy=_policy(written, GPU_POLICY, _GPU_POLICIES),
        )

    def capacity(self, node: Node) -> NodeGpus | None:
        """The cards as HAMi's plugin registers them, with their real uuids. Raises BadRecord."""
        written = node.metadata.annotations
        if REGISTER not in written:
            return None
        cordoned = names_in(CORDON, written.get(CORDON, ""), BadRecord)
        gpus = read_register(written[REGISTER], written.get(SCORES, ""), cordoned)
        return NodeGpus(node.metadata.name, gpus, 1, frozenset((self.name,))) if gpus else None

    def read_back(self, pod: Pod, cards: NodeGpus) -> Placement | None:
        return read_devices(pod, self.held(pod), cards)

    # -- writing

    def annotations(
        self, pod: Pod, request: Request, placement: Placement, cards: NodeGpus, now_ns: int
    ) -> Mapping[str, str]:
        sizes = {own.name: _sizes(own.part, placement, own.name, cards) for own in request.containers}
        return write_placed(pod, request, placement, sizes, now_ns)

    def labels(self, pod: Pod, request: Request, placement: Placement, cards: NodeGpus) -> Mapping[str, str]:
        return write_label(placement)

    def is_marked(self, pod: Pod) -> bool:
        return is_handed_over(pod)

    def hand_over_marks(self, pod: Pod, now_ns: int) -> Mapping[str, str]:
        return write_handed_over(pod, self.held(pod))

    def words(self, reason: Reason) -> str:
        return f"{_WORDS[reason]}: {reason.value}" if reason in _WORDS else reason.value

    # -- on the node

    def device_ids(self, resource: str, cards: NodeGpus) -> Sequence[tuple[str, str]]:
        if self._is_mig(resource):
            return instance_ids(resource, self.prefix, cards)
        return [(f"{gpu.uuid}-{share}", gpu.uuid) for gpu in cards.offered for share in range(SHARES)]

    def environment(
        self, pod: Pod, request: Request, container: str, placement: Placement, cards: NodeGpus
    ) -> Mapping[str, str]:
        """The variables that HAMi-core obeys where it is preloaded."""
        (own,) = (c for c in request.containers if c.name == container)
        given = _sizes(own.part, placement, container, cards)
        priority = {c.name: limit(c, self.priority) for c, _ in pod.containers() if self.priority in c.limits}
        return {
            **super().environment(pod, request, container, placement, cards),
            **{f"CUDA_DEVICE_MEMORY_LIMIT_{place}": f"{mib}m" for place, (_, mib) in enumerate(given)},
            "CUDA_DEVICE_SM_LIMIT": str(own.part.cores),
            **({"CUDA_TASK_PRIORITY": str(priority[container])} if container in priority else {}),
        }

    # -- showing

    def sample_pod(self) -> Mapping[str, Any]:
        return sample("gpu-part", {self.gpu: "1", self.gpumem: "3000", self.gpucores: "30"}, container="cuda")


def _part(asked: _Asked) -> Part | None:
    """Without a memory amount, the pod gets all memory. All memory without cores means the whole card, and so do all
    cores."""
    if not asked.cards:
        return None
    percent = min(asked.percent, 100) or 100
    memory = Memory(min(asked.mib, MAX_MIB)) if asked.mib else Memory(percent, Unit.PERCENT)
    default = CORES if memory == Memory(100, Unit.PERCENT) else 0
    cores = default if asked.cores is None else min(asked.cores, CORES)
    return Part(asked.cards, cores, memory, whole=cores == CORES)


def _sizes(part: Part, placement: Placement, container: str, cards: NodeGpus) -> list[tuple[Gpu, int]]:
    """The container's cards and the memory that it may use of each. Even of a whole card that may be less than all."""
    gpus = [card_called("the placement", given.uuid, cards) for given in placement.containers[container]]
    return [(gpu, part.memory.mib(gpu, cards.unit_mib)) for gpu in gpus]


# -- constraints


def _words(written: Mapping[str, str], key: str) -> tuple[str, ...]:
    """The items of a comma-separated list. Empty if it is missing or empty, as in HAMi."""
    return names_in(key, written.get(key, ""))


def _as_nvml(name: str) -> str:
    """HAMi puts its vendor's name in front of models that do not begin with it. NVML's name does not have it."""
    return "" if name.casefold() == "nvidia" else re.sub("^nvidia-", "", name, flags=re.IGNORECASE)


def _refuse_modes(written: Mapping[str, str]) -> None:
    modes = _words(written, MODE)
    if modes and "hami-core" not in modes:
        raise BadDemand(
            f"annotation {MODE}: {written[MODE][:64]!r} is not supported; write hami-core or leave it out. For a MIG "
            "instance ask for nvidia.com/mig-1g.5gb (or another profile), for MPS ask for keti.com/mpsgpu"
        )


def _is_true(written: Mapping[str, str], key: str) -> bool:
    text = written.get(key, "").strip()
    if text not in _TRUE | _FALSE | {""}:
        raise BadDemand(f"annotation {key}: {text[:64]!r} is neither true nor false")
    return text in _TRUE


def _policy(written: Mapping[str, str], key: str, names: Mapping[str, str]) -> str:
    """The first item of the list that ranks cards. Topology wins, as in HAMi."""
    words = _words(written, key)
    if "mutex" in words:
        raise BadDemand(f"annotation {key}: mutex is not supported; for a card of your own ask for gpucores: 100")
    if unknown := [word for word in words if word not in names]:
        raise BadDemand(f"annotation {key}: {unknown[0][:64]!r} is not a policy; write one of {', '.join(names)}")
    chosen = "topology-aware" if "topology-aware" in words else next(iter(words), "")
    return names.get(chosen, "")
