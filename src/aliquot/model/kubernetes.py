"""Kubernetes objects, with only the fields that we use, so that decoding stays cheap."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from aliquot.errors import BadQuantity
from aliquot.model.charge import Life, peak
from aliquot.model.host import UNKNOWN, Host, shared_host
from aliquot.model.quantity import milli, whole

_MILLI_PER_MIB = 1000 * 2**20


class _Wire(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    pass


class Metadata(_Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}


class Object(_Wire, frozen=True):
    """Anything with metadata."""

    metadata: Metadata

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone for cluster-scoped objects."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


Quantity: TypeAlias = str | int | float
"""A quantity as it stands in JSON; aliquot.model.quantity parses its text."""


class Present(_Wire, frozen=True):
    """A field that only matters by its presence."""


class Resources(_Wire, frozen=True):
    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None


class Container(_Wire, frozen=True):
    name: str
    resources: Resources = Resources()
    restart_policy: str | None = None

    @property
    def limits(self) -> Mapping[str, Quantity]:
        return self.resources.limits or {}

    @property
    def requests(self) -> Mapping[str, Quantity]:
        """What the scheduler counts. A limit without a request counts as the request."""
        return {**self.limits, **(self.resources.requests or {})}

    def asks_any(self, is_meant: Callable[[str], bool]) -> bool:
        """Whether the container asks for more than 0 of any resource that `is_meant` accepts. An unreadable amount
        counts as asked for, so that the user gets an error."""
        limits = self.limits
        return any(_is_more_than_none(limits[name]) for name in filter(is_meant, limits))


def _requested(resources: Resources, resource: str) -> int | None:
    """The request in thousandths, for which a limit stands in; None without either. Raises BadQuantity."""
    requests, limits = resources.requests, resources.limits
    if requests and resource in requests:
        return milli(str(requests[resource]))
    return milli(str(limits[resource])) if limits and resource in limits else None


def _is_more_than_none(amount: Quantity) -> bool:
    try:
        return whole(str(amount)) > 0
    except BadQuantity:
        return True


class PodSpec(_Wire, frozen=True):
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    scheduler_name: str = ""
    scheduling_gates: list[Present] | None = None
    priority: int | None = None
    overhead: dict[str, Quantity] | None = None
    resources: Resources | None = None
    """For all containers together. Kubernetes allows only CPU, memory and huge pages here."""


class Waiting(_Wire, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerState(_Wire, frozen=True):
    running: Present | None = None
    terminated: Present | None = None
    waiting: Waiting | None = None


class ContainerStatus(_Wire, frozen=True):
    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()

    @property
    def has_run(self) -> bool:
        """Whether the container runs or has run. Between two runs it waits, and only its last state tells."""
        states = (self.state, self.last_state)
        return any(state.running is not None or state.terminated is not None for state in states)


class Condition(_Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


NOT_BEGUN = ("", "Pending")
"""The phases of a pod before all of its containers have started."""


class PodStatus(_Wire, frozen=True):
    phase: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    conditions: list[Condition] | None = None
    container_statuses: Sequence[ContainerStatus] | None = None
    init_container_statuses: Sequence[ContainerStatus] | None = None


class Pod(Object, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def priority(self) -> int:
        return self.spec.priority or 0

    @property
    def waits(self) -> bool:
        """Whether the pod is free to be bound."""
        held_back = self.metadata.deletion_timestamp or self.spec.scheduling_gates
        return not (self.spec.node_name or held_back or self.ended)

    @property
    def has_final_phase(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def ended(self) -> bool:
        """Whether the pod's containers have ended: the phase says so, and no container is still terminating."""
        if not self.has_final_phase:
            return False
        statuses = [*(self.status.container_statuses or ()), *(self.status.init_container_statuses or ())]
        return all(s.state.running is None for s in statuses)

    @property
    def started(self) -> bool:
        """Whether a container that may have cards runs or has run. A container that asks for no extended resource, or
        for 0 of it, has no cards and may run before the others have theirs."""
        return self.has_run(lambda resource: "/" in resource)

    def has_run(self, is_meant: Callable[[str], bool]) -> bool:
        """Whether a container that asks for more than 0 of such a resource runs or has run."""
        asking = {container.name for container, _ in self.containers() if container.asks_any(is_meant)}
        statuses = [*(self.status.container_statuses or ()), *(self.status.init_container_statuses or ())]
        return any(status.has_run for status in statuses if status.name in asking)

    def containers(self) -> list[tuple[Container, Life]]:
        """Every container in the order in which kubelet starts them, with the way its part counts."""
        main = [(container, Life.MAIN) for container in self.spec.containers]
        if not self.spec.init_containers:
            return main
        lives = (Life.SIDECAR if each.restart_policy == "Always" else Life.INIT for each in self.spec.init_containers)
        return [*zip(self.spec.init_containers, lives, strict=True), *main]

    @property
    def asks_extended(self) -> bool:
        """Whether a container names an extended resource."""
        return bool(self.extended_resources)

    @property
    def extended_resources(self) -> frozenset[str]:
        """The extended resources that containers name. Only these have a slash."""
        own = self.spec.containers
        if self.spec.init_containers:
            own = [*own, *self.spec.init_containers]
        return frozenset([name for container in own for name in container.resources.limits or () if "/" in name])

    def asks(self, resource: str) -> int:
        """How much of an extended resource Kubernetes counts for the pod. Raises BadQuantity."""
        return peak((life, whole(str(container.limits.get(resource, 0)))) for container, life in self.containers())

    def requests(self, resource: str) -> int:
        """How many thousandths of a resource the scheduler counts for the pod. Raises BadQuantity."""
        overhead = milli(str(self.spec.overhead.get(resource, 0))) if self.spec.overhead else 0
        together = _requested(self.spec.resources, resource) if self.spec.resources else None
        if together is None and not self.spec.init_containers:  # most pods, and the server counts every pod
            together = sum(_requested(container.resources, resource) or 0 for container in self.spec.containers)
        elif together is None:
            parts = ((life, _requested(own.resources, resource) or 0) for own, life in self.containers())
            together = peak(parts)
        return together + overhead

    @property
    def host(self) -> Host:
        """What the pod requests of its node's CPU and memory, by its spec. What cannot be read counts as nothing."""
        return shared_host(
            _bounded(self._readable("cpu")),
            _bounded(-(-self._readable("memory") // _MILLI_PER_MIB)),
        )

    def _readable(self, resource: str) -> int:
        try:
            return self.requests(resource)
        except BadQuantity:
            return 0


def _bounded(amount: int) -> int:
    """Users may write amounts that no array can hold."""
    return min(amount, UNKNOWN)


class NodeStatus(_Wire, frozen=True):
    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None
    conditions: list[Condition] | None = None


class Taint(_Wire, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


class NodeSpec(_Wire, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] | None = None


class Node(Object, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions or ())

    @property
    def host(self) -> Host:
        """What the node offers of CPU and memory to all pods together. What it does not say is unknown."""
        cpu, memory = self._offers("cpu"), self._offers("memory")
        return Host(
            UNKNOWN if cpu is None else _bounded(cpu), UNKNOWN if memory is None else _bounded(memory // _MILLI_PER_MIB)
        )

    def _offers(self, resource: str) -> int | None:
        """Thousandths."""
        amounts = self.status.allocatable or {}
        try:
            return milli(str(amounts[resource])) if resource in amounts else None
        except BadQuantity:
            return None
