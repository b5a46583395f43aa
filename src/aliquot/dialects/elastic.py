"""elastic: percent of cards, or cores and MiB; `elastic-gpu/gpu-percent`, `elasticgpu.io/gpu-core` and `gpu-memory`.

The original changed its names four times. Each generation is a family here: a pod speaks one of them, and its keys are
written in the same family. All of them are served, unless a prefix chooses one: then the others are only read.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from aliquot.dialects.percent import whole_cards
from aliquot.dialects.protocol import (
    Dialect,
    Resource,
    advice_for_bytes,
    allocatable_of,
    capacity_of,
    card_at,
    card_numbers,
    equal_cards,
    limit,
    memory_given,
    placed_on,
    sample,
)
from aliquot.dialects.sample_workloads import deployment_of
from aliquot.errors import BadDemand, BadRecord
from aliquot.model import (
    CORES,
    Container,
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
)
from aliquot.model.bounds import MAX_ELASTIC_MEMORY

_LONGEST_KEY = 63
"""Characters after the slash of a key. The API server accepts no more."""
_NOTIONAL_MIB = 100
"""The size of a card of which only percents are known: 1 MiB per percent."""
_GIB_UNITS_AT_MAX = 100
_WITHOUT_GPU = "-1"

_NO_ROOM = "no enough resource to allocate"
_NO_NODE = "elastic gpu scheduler get node failed"
_WORDS = {
    Reason.NO_CARD_FITS: _NO_ROOM,
    Reason.TOO_LARGE: f"{_NO_ROOM}: {Reason.TOO_LARGE.value}",
    Reason.NOT_SELLABLE: f"{_NO_ROOM}: {Reason.NOT_SELLABLE.value}",
    Reason.NO_GPUS: "no gpu available on node",
    Reason.UNKNOWN_NODE: _NO_NODE,
}
_ORIGINAL_WORDS = {
    Reason.TOO_LARGE: _NO_ROOM,
    Reason.NOT_SELLABLE: f"{_NO_NODE}: no gpu available on node {{node}}",
    Reason.NO_GPUS: f"{_NO_NODE}: no gpu available on node {{node}}",
    Reason.UNKNOWN_NODE: f'{_NO_NODE}: nodes "{{node}}" not found',
}
"""For a node without allocatable cards, the original says the same as for a node without cards."""


@dataclass(frozen=True)
class Family(ABC):
    """One generation of names.

    `assumed` is the annotation and label of a placed pod. `container`, followed by a container's name, is the
    annotation of that container's cards. `unwritten` is the value that the original assumes if that annotation is
    missing, "" if it assumes none.
    """

    prefix: str
    assumed: str
    container: str
    unwritten: str = ""
    marks_others: ClassVar[bool] = False
    """Whether the original marks containers without GPU as such."""
    knows_memory: ClassVar[bool] = True
    counts_unassumed: ClassVar[bool] = False
    """Whether the original, when it starts, counts bound pods that are not `assumed`."""

    @property
    @abstractmethod
    def resources(self) -> tuple[Resource, ...]: ...

    @abstractmethod
    def part(self, container: Container) -> Part | None:
        """What a container gets, as the original counts it; None without GPU."""

    @abstractmethod
    def check(self, container: Container) -> None:
        """Raises BadDemand for a demand that the original counts differently from what users mean, or never places."""

    @abstractmethod
    def cards(self, node: Node) -> NodeGpus | None: ...

    @abstractmethod
    def ids(self, resource: str, gpu: Gpu, unit_mib: int) -> Iterator[str]: ...

    def asked_by(self, pod: Pod) -> bool:
        names = [resource.name for resource in self.resources]
        return any(limit(container, name) for container, _ in pod.containers() for name in names)

    def key(self, container: str) -> str:
        return f"{self.container}{container}"

    def has_room_for(self, container: str) -> bool:
        return len(self.key(container).partition("/")[2]) <= _LONGEST_KEY


class Percents(Family):
    marks_others = True
    knows_memory = False

    @property
    def gpu_percent(self) -> str:
        return f"{self.prefix}/gpu-percent"

    @property
    def resources(self) -> tuple[Resource, ...]:
        unit = "a percent of a card's cores and memory; 100 is a whole card"
        return (Resource(self.gpu_percent, unit, f"{self.prefix}.sock"),)

    def part(self, container: Container) -> Part | None:
        percent = limit(container, self.gpu_percent)
        if percent >= CORES:
            return Part(cards=percent // CORES, whole=True)
        return Part(cores=percent, memory=Memory(percent, Unit.PERCENT)) if percent else None

    def check(self, container: Container) -> None:
        if (percent := limit(container, self.gpu_percent)) > CORES:
            whole_cards(f"container {container.name}, limits, {self.gpu_percent}", percent)

    def cards(self, node: Node) -> NodeGpus | None:
        return equal_cards(node, capacity_of(node, self.gpu_percent) // CORES, _NOTIONAL_MIB)

    def ids(self, resource: str, gpu: Gpu, unit_mib: int) -> Iterator[str]:
        return (f"nano-{gpu.index}-{number:02d}" for number in range(CORES))


@dataclass(frozen=True)
class CoresAndMemory(Family):
    counts_unassumed = True

    unit: Unit = Unit.MIB
    reads_allocatable: bool = True
    """Whether the original looks at a node's allocatable resources, or at its capacity."""
    has_status: bool = True
    """Whether its scheduler has a page that shows what is left of each card."""
    sockets: tuple[str, str] = ("elastic-gpushare-core.sock", "elastic-gpushare-mem.sock")
    """The sockets of cores and of memory."""

    @property
    def gpu_core(self) -> str:
        return f"{self.prefix}/gpu-core"

    @property
    def gpu_memory(self) -> str:
        return f"{self.prefix}/gpu-memory"

    @property
    def resources(self) -> tuple[Resource, ...]:
        core_socket, memory_socket = self.sockets
        memory = "a MiB of memory" if self.unit is Unit.MIB else "a node unit of memory: GiB, unless the node says MiB"
        return (
            Resource(self.gpu_core, "a percent of a card's cores; 100 is a whole card", core_socket),
            Resource(self.gpu_memory, memory, memory_socket),
        )

    def part(self, container: Container) -> Part | None:
        cores, memory = limit(container, self.gpu_core), limit(container, self.gpu_memory)
        if cores >= CORES:
            return Part(cards=cores // CORES, whole=True)
        held = Memory(min(memory, MAX_ELASTIC_MEMORY), self.unit)
        return Part(cores=cores, memory=held) if cores or memory else None

    def check(self, container: Container) -> None:
        where = f"container {container.name}, limits"
        if (cores := limit(container, self.gpu_core)) > CORES:
            whole_cards(f"{where}, {self.gpu_core}", cores)
        if (memory := limit(container, self.gpu_memory)) > MAX_ELASTIC_MEMORY:
            advice = advice_for_bytes(container, self.gpu_memory, 2**20 if self.unit is Unit.MIB else 2**30)
            raise BadDemand(
                f"{where}, {self.gpu_memory}: {memory} is more than any GPU has; it counts {self.unit.value}: {advice}"
            )

    def cards(self, node: Node) -> NodeGpus | None:
        """All cards of the node, so that a record can name each. Cards beyond what is allocatable are not sold. A node
        that offers no memory sells only cores."""
        total = capacity_of(node, self.gpu_core) // CORES
        allocatable = allocatable_of(node, self.gpu_core) // CORES if self.reads_allocatable else total
        amount = allocatable_of if self.reads_allocatable and allocatable else capacity_of
        count = allocatable or total
        units = amount(node, self.gpu_memory) // count if count else 0
        in_gib = self.unit is Unit.NODE and units <= _GIB_UNITS_AT_MAX
        unit_mib = 1024 if in_gib else 1
        cards = equal_cards(node, max(total, allocatable), units * unit_mib, unit_mib, least_mib=0)
        if cards is None or allocatable >= total:
            return cards
        return replace(cards, gpus=tuple(replace(gpu, healthy=gpu.index < allocatable) for gpu in cards.gpus))

    def ids(self, resource: str, gpu: Gpu, unit_mib: int) -> Iterator[str]:
        units = gpu.mib // unit_mib if self.unit is Unit.NODE else gpu.mib
        return (f"{gpu.index}-{number:02d}" for number in range(CORES if resource == self.gpu_core else units))


def _percents(prefix: str, unwritten: str = "") -> Family:
    return Percents(prefix, f"{prefix}/assume", f"{prefix}/container-", unwritten)


def _cores_and_memory(prefix: str) -> Family:
    return CoresAndMemory(prefix, f"{prefix}/assumed", f"{prefix}/container-")


_CURRENT = (_percents("elastic-gpu"), _cores_and_memory("elasticgpu.io"))
_OTHER = (
    CoresAndMemory(
        "elasticgpu.com",
        "elasticgpu.io/assumed",
        "elasticgpu.io/container-",
        sockets=("elasticgpu.com-core.sock", "elasticgpu.com-mem.sock"),
    ),
    _percents("nano-gpu", unwritten="0"),
    CoresAndMemory(
        "nano-gpu.io",
        "nano-gpu.io/gpu",
        "nano-gpu.io/gpu-",
        unit=Unit.NODE,
        reads_allocatable=False,
        has_status=False,
        sockets=("nano-gpu.io-core.sock", "nano-gpu.io-mem.sock"),
    ),
)


def _named(prefix: str) -> tuple[Family, ...]:
    """The families of a configured prefix: those that use it, else new families of both kinds."""
    known = tuple(family for family in (*_CURRENT, *_OTHER) if family.prefix == prefix)
    return known or (_percents(prefix), _cores_and_memory(prefix))


class Elastic(Dialect):
    name = "elastic"
    standard_prefix = "elastic-gpu"
    node_policy = "binpack"
    gpu_policy = "binpack"
    original_words = _ORIGINAL_WORDS

    def __init__(self, prefix: str = "") -> None:
        super().__init__(prefix)
        is_standard = self.prefix == self.standard_prefix
        self._current = _CURRENT if is_standard else _named(self.prefix)
        others = tuple(family for family in (*_CURRENT, *_OTHER) if family not in self._current)
        self._families = (*self._current, *others)
        current = (resource for family in self._current for resource in family.resources)
        older = (resource for family in others for resource in family.resources)
        self._resources = (*current, *(older if is_standard else (replace(read, socket="") for read in older)))

    # -- names

    @property
    def resources(self) -> Sequence[Resource]:
        """The first resource that a container asks for carries its devices."""
        return self._resources

    @property
    def card_resources(self) -> Sequence[str]:
        return [resource.name for family in self._current for resource in family.resources]

    @property
    def placement_keys(self) -> Sequence[str]:
        keys = (key for family in self._families for key in (family.assumed, family.key("*")))
        return tuple(dict.fromkeys(keys))

    # -- reading

    def demand(self, pod: Pod) -> Request:
        families = self._spoken(pod)
        if len(families) > 1:
            names = ", ".join(resource.name for family in families for resource in family.resources)
            raise BadDemand(f"the pod mixes several generations of names ({names}); use one of them")
        request = self._request(pod, families[0])
        for container, _ in pod.containers():
            families[0].check(container)
        for asking in request.containers:
            _refuse_long_name(asking.name, families[0])
        return request

    def held(self, pod: Pod) -> Request:
        return self._request(pod, *self._spoken(pod))

    def _spoken(self, pod: Pod) -> Sequence[Family]:
        """The families in which the pod asks. If it asks for nothing, the first."""
        return [family for family in self._families if family.asked_by(pod)] or self._current[:1]

    def _request(self, pod: Pod, *families: Family) -> Request:
        containers = (
            ContainerRequest(container.name, _together(parts), life)
            for container, life in pod.containers()
            if (parts := [part for family in families if (part := family.part(container)) is not None])
        )
        return self.request(pod, containers)

    def status_resources(self, nodes: Iterable[Node]) -> Sequence[str]:
        """The resources under which the original's status page shows cards: cores and memory of each generation that
        these nodes have, else of the current generation."""
        families = [f for f in self._families if isinstance(f, CoresAndMemory) and f.has_status]
        named = {resource for node in nodes for resource in node.status.capacity or ()}
        used = [family for family in families if family.gpu_core in named] or families[:1]
        return [resource.name for family in used for resource in family.resources]

    def capacity(self, node: Node) -> NodeGpus | None:
        """The cards in the family that knows the most of them, if it has any to sell."""
        families = sorted(self._families, key=lambda family: not family.knows_memory)
        seen = [cards for family in families if (cards := family.cards(node))]
        return next((cards for cards in seen if any(map(cards.sells, cards.gpus))), seen[0] if seen else None)

    def read_back(self, pod: Pod, cards: NodeGpus) -> Placement | None:
        """Reads the pod's own family, else any family: for a while the original's scheduler did not write the keys that
        its agent read. The numbers are indexes."""
        meta = pod.metadata
        request, spoken = self.held(pod), self._spoken(pod)
        asking = [(own, asker) for own in spoken for asker, _ in pod.containers() if own.part(asker) is not None]
        known = self._which_placed(pod, [asker.name for _, asker in asking])
        if not known:
            return None
        found: dict[str, dict[int, Gpu]] = {asked.name: {} for asked in request.containers}
        for own, asker in asking:
            family = own if own in known else known[0]
            key = family.key(asker.name)
            text = meta.annotations.get(key, family.unwritten)
            if not text:
                raise BadRecord(f"{key} is missing, but container {asker.name} asks for {own.resources[0].name}")
            found[asker.name] |= {index: card_at(key, index, cards) for index in card_numbers(key, text)}
        return placed_on(request, {name: list(gpus.values()) for name, gpus in found.items()}, cards)

    def _which_placed(self, pod: Pod, asking: Sequence[str]) -> Sequence[Family]:
        """The families in whose keys the pod is placed: the pod is `assumed`, or the annotations name the cards of each
        of these containers. The annotations alone count only if they do in the original, or if the pod runs and so has
        its cards."""
        marks = {**pod.metadata.labels, **pod.metadata.annotations}
        if assumed := [family for family in self._families if family.assumed in marks]:
            return assumed
        counting = (family for family in self._families if family.counts_unassumed or pod.started)
        return [family for family in counting if all(family.key(name) in pod.metadata.annotations for name in asking)]

    # -- writing

    def annotations(
        self, pod: Pod, request: Request, placement: Placement, cards: NodeGpus, now_ns: int
    ) -> Mapping[str, str]:
        family = self._spoken(pod)[0]
        indexes = {
            family.key(name): ",".join(map(str, sorted(part.index for part in parts)))
            for name, parts in placement.containers.items()
        }
        asking = {asked.name for asked in request.containers}
        without = [c.name for c in pod.spec.containers if c.name not in asking] if family.marks_others else ()
        others = {family.key(name): _WITHOUT_GPU for name in without if family.has_room_for(name)}
        return {**others, **indexes, family.assumed: "true"}

    def labels(self, pod: Pod, request: Request, placement: Placement, cards: NodeGpus) -> Mapping[str, str]:
        return {self._spoken(pod)[0].assumed: "true"}

    def words(self, reason: Reason) -> str:
        return _WORDS.get(reason, reason.value)

    # -- on the node

    def device_ids(self, resource: str, cards: NodeGpus) -> Sequence[tuple[str, str]]:
        (family,) = (f for f in self._families if resource in [known.name for known in f.resources])
        return [(number, gpu.uuid) for gpu in cards.offered for number in family.ids(resource, gpu, cards.unit_mib)]

    # -- showing

    def environment(
        self, pod: Pod, request: Request, container: str, placement: Placement, cards: NodeGpus
    ) -> Mapping[str, str]:
        return {
            **super().environment(pod, request, container, placement, cards),
            **memory_given(placement, container),
        }

    def sample_pod(self) -> Mapping[str, Any]:
        labels = {"app": "gpu-test"}
        pod = sample("cuda-gpu-test", {self.resource: "20"}, container="cuda", labels=labels, seconds=100_000)
        (container,) = pod["spec"]["containers"]
        del container["imagePullPolicy"]
        container["image"] = "nvidia/cuda:12.4.1-base-ubuntu22.04"
        return pod

    def sample_workload(self) -> Mapping[str, Any]:
        return deployment_of(self.sample_pod())


def _together(parts: Sequence[Part]) -> Part:
    """All cards of a container that asks in several generations of names, which only other tools allow."""
    return parts[0] if len(parts) == 1 else Part(max(part.cards for part in parts), whole=True)


def _refuse_long_name(container: str, family: Family) -> None:
    if not family.has_room_for(container):
        raise BadDemand(
            f"container {container}: its name is too long for the annotation {family.key('<name>')}; use at most "
            f"{_LONGEST_KEY - len(family.key('').partition('/')[2])} letters"
        )
