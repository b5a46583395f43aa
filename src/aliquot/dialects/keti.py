"""keti: cards shared by MPS, `keti.com/mpsgpu`; annotations set the memory per card."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from math import ceil
from typing import Any

from aliquot.dialects.protocol import Dialect, Resource, card_called, cards_asked, placed_on, sample
from aliquot.dialects.sample_workloads import job_of
from aliquot.errors import BadDemand, BadQuantity, BadRecord
from aliquot.model import ContainerRequest, Gpu, Life, Memory, NodeGpus, Part, Placement, Pod, Request, Unit
from aliquot.model.bounds import LARGEST_RECORD, MAX_MIB, require_size
from aliquot.model.quantity import parse

UUID = "UUID"
"""Annotation: the uuids of the pod's cards, one container after another."""
REQUEST = "GPUrequest"
LIMIT = "GPUlimits"
"""Annotations: memory on each card, as a Kubernetes quantity in bytes."""

PINNED_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

SLOTS = 10
"""The number of slots that the original cuts a card into."""
_MIB = 2**20
_NBODY = ["nbody", "-benchmark", "-numdevices=1", "-numbodies=1982000"]


class Keti(Dialect):
    name = "keti"
    standard_prefix = "keti.com"
    node_policy = "keti"
    gpu_policy = "keti"
    slots = SLOTS

    # -- names

    @property
    def mpsgpu(self) -> str:
        return f"{self.prefix}/mpsgpu"

    @property
    def resources(self) -> Sequence[Resource]:
        return (Resource(self.mpsgpu, "an MPS slot on each of that many cards", "nvidia-keti-mpsgpu.sock"),)

    @property
    def placement_keys(self) -> Sequence[str]:
        return (UUID,)

    @property
    def size_keys(self) -> Sequence[str]:
        return (REQUEST, LIMIT)

    # -- reading

    def demand(self, pod: Pod) -> Request:
        request, limit = _bytes(pod, REQUEST), _bytes(pod, LIMIT)
        if request is not None and limit is not None and limit < request:
            raise BadDemand(
                f"annotation {LIMIT}: {pod.metadata.annotations[LIMIT]} is below {REQUEST}, "
                f"{pod.metadata.annotations[REQUEST]}; write at least as much, or leave {REQUEST} out"
            )
        return self._request(pod, _part(request, limit))

    def held(self, pod: Pod) -> Request:
        """The original checks neither annotation. A size that cannot be read counts as missing."""
        return self._request(pod, _part(_readable(pod, REQUEST), _readable(pod, LIMIT)))

    def demand_can_change(self, pod: Pod) -> bool:
        return True  # even if an annotation was removed

    def _request(self, pod: Pod, part: Part) -> Request:
        containers = (
            ContainerRequest(container.name, replace(part, cards=count), life)
            for container, life in pod.containers()
            if (count := cards_asked(container, self.mpsgpu))
        )
        return self.request(pod, containers)

    def read_back(self, pod: Pod, cards: NodeGpus) -> Placement | None:
        """Each container has its own cards, in order. The original ignores init containers when it counts, and gives
        them the first cards of the list."""
        text = pod.metadata.annotations.get(UUID)
        if text is None:
            return None
        require_size(UUID, text, LARGEST_RECORD, BadRecord)
        gpus = [card_called(UUID, uuid, cards) for item in text.split(",") if (uuid := item.strip())]
        request = self.held(pod)
        containers = request.containers
        if len(gpus) == _cards(containers):
            own = _dealt(containers, gpus)
        else:
            counted = [container for container in containers if container.life is Life.MAIN]
            if len(gpus) != _cards(counted):
                raise BadRecord(f"{UUID} names {len(gpus)} cards, but the pod asks for {_cards(containers)}")
            own = {container.name: gpus[: container.part.cards] for container in containers} | _dealt(counted, gpus)
        return placed_on(request, own, cards)

    # -- writing

    def annotations(
        self, pod: Pod, request: Request, placement: Placement, cards: NodeGpus, now_ns: int
    ) -> Mapping[str, str]:
        parts = (part for container in request.containers for part in placement.containers[container.name])
        return {UUID: ",".join(part.uuid for part in parts)}

    # -- on the node

    def device_ids(self, resource: str, cards: NodeGpus) -> Sequence[tuple[str, str]]:
        return [(f"{gpu.uuid}-{slot}", gpu.uuid) for gpu in cards.offered for slot in range(gpu.slots or SLOTS)]

    def environment(
        self, pod: Pod, request: Request, container: str, placement: Placement, cards: NodeGpus
    ) -> Mapping[str, str]:
        """MPS numbers the cards that the container sees from 0. It does not accept the uuids that the original
        writes."""
        (own,) = (c for c in request.containers if c.name == container)
        found = dict(super().environment(pod, request, container, placement, cards))
        if own.part.memory_limit is not None:
            size = own.part.memory_limit.amount
            found[PINNED_LIMIT] = ",".join(f"{place}={size}M" for place in range(own.part.cards))
        return found

    # -- showing

    def sample_pod(self) -> Mapping[str, Any]:
        size = {"cpu": "250m", "memory": "6400Mi"}
        pod = sample("nbody-benchmark-mps-test", {self.mpsgpu: 1, **size}, container="nbody1", namespace="userpod")
        (container,) = pod["spec"]["containers"]
        del container["command"], container["imagePullPolicy"]
        container |= {"image": "seedjeffwan/nbody:cuda-10.1", "args": _NBODY}
        container["resources"]["requests"] = size
        container["volumeMounts"] = [{"name": "nvidia-mps", "mountPath": "/tmp/nvidia-mps"}]
        volumes = [{"name": "nvidia-mps", "hostPath": {"path": "/tmp/nvidia-mps"}}]
        pod["spec"] |= {
            "hostIPC": True,
            "schedulerName": "gpu-scheduler",
            "volumes": volumes,
            "restartPolicy": "Never",
        }
        return pod

    def sample_workload(self) -> Mapping[str, Any]:
        return job_of(self.sample_pod())


def _part(request: Fraction | None, limit: Fraction | None) -> Part:
    """One slot. Its memory is the requested amount, else that of a slot."""
    asked = limit if request is None else request
    memory = Memory(1, Unit.SLOT) if asked is None else _memory(asked)
    return Part(slots=1, memory=memory, memory_limit=None if limit is None else _memory(limit))


def _memory(size: Fraction) -> Memory:
    return Memory(ceil(size / _MIB))


def _bytes(pod: Pod, annotation: str) -> Fraction | None:
    """Raises BadDemand, which names the annotation."""
    text = pod.metadata.annotations.get(annotation)
    if text is None:
        return None
    try:
        size = parse(text)
    except BadQuantity as error:
        raise BadDemand(f"annotation {annotation}: {error}") from error
    if not _MIB <= size <= MAX_MIB * _MIB:
        much = "more than any GPU has" if size > _MIB else "negative" if size < 0 else "less than 1Mi"
        raise BadDemand(f"annotation {annotation}: {text} is {much}; it counts bytes: write 4Gi or 4000Mi")
    return size


def _readable(pod: Pod, annotation: str) -> Fraction | None:
    try:
        return _bytes(pod, annotation)
    except BadDemand:
        return None


def _cards(containers: Iterable[ContainerRequest]) -> int:
    return sum(container.part.cards for container in containers)


def _dealt(containers: Iterable[ContainerRequest], gpus: Iterable[Gpu]) -> dict[str, list[Gpu]]:
    """Each container takes its number of cards off the list."""
    following = iter(gpus)
    return {container.name: list(islice(following, container.part.cards)) for container in containers}
