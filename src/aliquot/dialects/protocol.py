"""What a dialect declares. Agent, control plane, endpoints and demo read this and know no vendor's names themselves.

A dialect is a subclass in one module. What it must declare is abstract; the rest has defaults that suit most
vocabularies.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import msgspec

from aliquot.errors import BadConfig, BadDemand, BadInput, BadQuantity, BadRecord
from aliquot.model import (
    NO_CONSTRAINTS,
    OF_MODEL,
    Constraints,
    Container,
    ContainerRequest,
    Gpu,
    Node,
    NodeGpus,
    Placement,
    Pod,
    Reason,
    Request,
    cut,
    made_up_uuid,
)
from aliquot.model.bounds import LARGEST_CONSTRAINT, LARGEST_RECORD, MAX_CARDS, MAX_MIB, MAX_NAMES, require_size
from aliquot.model.kubernetes import Quantity
from aliquot.model.quantity import whole

_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_LONGEST_PREFIX = 253


@dataclass(frozen=True, slots=True)
class Resource:
    """An extended resource of a dialect: its name, what 1 of it means, and the file name of its device plugin's
    socket, which is that of the original. A resource without a socket is not offered to kubelet. If no node offers it,
    it is not `on_nodes`, and kube-scheduler must not count it."""

    name: str
    unit: str
    socket: str = ""
    on_nodes: bool = True


class Dialect(ABC):
    name: ClassVar[str]
    standard_prefix: ClassVar[str]
    """The prefix of its resources and annotations. A cluster may configure another prefix."""
    node_labels: ClassVar[Mapping[str, str]] = {}
    """Labels with which the original marks its nodes. `dialect.aliquot.io/<name>=true` always works."""
    node_policy: str = "lookahead"
    gpu_policy: str = "lookahead"
    """The default policies, by their names in the engine's tables. A dialect whose original promises a choice has its
    own."""
    model_labels: Sequence[str] = ()
    pool_labels: Sequence[str] = ()
    """Node labels that name the model and the pool of a node's cards for quotas. The first label that is present
    counts."""
    shares_resources_with: ClassVar[str] = ""
    """The dialect that may have a resource of the same name. A pod speaks one of them, never both."""
    also_serves: ClassVar[str] = ""
    """The dialect whose pods a node that serves this one serves as well, if both have the same resource."""
    names_cards: ClassVar[bool] = True
    """Whether a pod's record names its cards. If only kubelet knows them, the pod counts by their number."""
    allocator: ClassVar[str] = ""
    """The GPU policy by which the original's agent chooses cards for one container after another, and records them, if
    no scheduler has chosen. Empty if the agent only follows a scheduler's choice."""
    slots: ClassVar[int] = 0
    """The number of MPS slots into which the cards of a node that serves the dialect are cut."""
    original_words: ClassVar[Mapping[Reason, str]] = {}
    """Refusals that the original phrases differently from `words`, with `{node}` and `{uid}` where it names them."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix or self.standard_prefix
        if len(self.prefix) > _LONGEST_PREFIX or not _PREFIX.fullmatch(self.prefix):
            raise BadConfig(
                f"prefix of dialect {self.name}: {prefix[:64]!r} is not a valid prefix for resource names; "
                f"write a domain in lower case, such as example.com, of at most {_LONGEST_PREFIX} characters"
            )

    @property
    def agent_chooses(self) -> bool:
        return bool(self.allocator)

    def serves(self, other: "Dialect") -> bool:
        """Whether a node that serves this dialect hands out what pods ask for in another dialect."""
        return other.name == self.name or (other.name == self.also_serves and other.resource == self.resource)

    # -- names

    @property
    @abstractmethod
    def resources(self) -> Sequence[Resource]:
        """Every resource with which a pod speaks this dialect. Resources with a socket are offered to kubelet. The
        first of these that a container asks for brings its devices."""

    @cached_property
    def resource_names(self) -> frozenset[str]:
        return frozenset(resource.name for resource in self.resources)

    @property
    def resource(self) -> str:
        """The resource that every node of the dialect offers."""
        return self.resources[0].name

    @property
    def card_resources(self) -> Sequence[str]:
        """The resources that each get a container cards. The error for a pod that asks for none of them names these."""
        return (self.resource,)

    @property
    @abstractmethod
    def placement_keys(self) -> Sequence[str]:
        """The annotations and labels that record a pod's placement. A key that ends in `*` stands for all keys with
        that prefix. Users may not write them."""

    @property
    def size_keys(self) -> Sequence[str]:
        """The annotations and labels in which users say how much a pod gets, in the same form. Users may not change
        them once the pod is bound."""
        return ()

    @property
    def mark_keys(self) -> Sequence[str]:
        """The annotations that the node's agent writes after it has handed over the cards, in the same form."""
        return tuple(self.hand_over_marks(msgspec.convert(self.sample_pod(), Pod), 0))

    @property
    def guarded_resources(self) -> Sequence[str]:
        """The resources, in the same form, that make the API server guard a pod's keys. The API server knows nothing
        else about the dialect."""
        return [resource.name for resource in self.resources]

    def guards(self, resource: str) -> bool:
        exact, prefixes = self._guarded
        return resource in exact or resource.startswith(prefixes)

    @cached_property
    def _guarded(self) -> tuple[frozenset[str], tuple[str, ...]]:
        """The guarded resources that are named exactly, and the prefixes of the others."""
        patterns = self.guarded_resources
        prefixes = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))
        return frozenset(pattern for pattern in patterns if not pattern.endswith("*")), prefixes

    @property
    def card_label_keys(self) -> Sequence[str]:
        """The keys of `card_labels`."""
        return ()

    def card_labels(self, cards: NodeGpus) -> Mapping[str, str]:
        """Labels that tell schedulers and people which cards a node has, as the dialect's other programs write them on
        a Node."""
        return {}

    # -- reading what is asked and what there is

    def speaks(self, pod: Pod) -> bool:
        """Whether the pod asks for more than 0 of a resource of this dialect."""
        return asks_any(pod, self.resource_names.__contains__)

    def mentions(self, pod: Pod) -> bool:
        """Whether a pod that asks for nothing means this dialect because it names 0 of a resource. Its user is then
        told so."""
        return bool(self._named(pod))

    def _named(self, pod: Pod) -> Mapping[str, Quantity]:
        """The resources of this dialect that the pod's containers name, with the amount of the last container that
        names it."""
        written = (item for container, _ in pod.containers() for item in container.limits.items())
        return {name: amount for name, amount in written if name in self.resource_names}

    @abstractmethod
    def demand(self, pod: Pod) -> Request:
        """What the pod asks for. Raises BadDemand with the field's name and what to write instead."""

    def request(self, pod: Pod, containers: Iterable[ContainerRequest], *, together: bool = False) -> Request:
        """What these containers of the pod ask for. Raises BadDemand if there are none."""
        asking = tuple(containers)
        if not asking:
            others = {name: amount for name, amount in self._named(pod).items() if name not in self.card_resources}
            written = ", ".join(f"{name}: {amount}" for name, amount in others.items())
            raise BadDemand(
                f"no container of the pod asks for more than 0 of {' or '.join(self.card_resources)}"
                f"{'; it writes ' if written else ''}{written}"
            )
        return Request(pod.metadata.uid, pod.key, self.name, asking, together, pod.priority, allocator=self.allocator)

    def held(self, pod: Pod) -> Request:
        """What a bound pod holds, as the original counts it. The pod may ask for something that we would not place."""
        return self.demand(pod)

    def demand_can_change(self, pod: Pod) -> bool:
        """Whether part of the demand is in annotations or labels, which users may rewrite on a running pod. Then the
        pod holds at least what its record says."""
        return False

    def by_spec(self, pod: Pod) -> Request | None:
        """The most that a bound pod can have of one card according to its spec, which nobody can rewrite. None if that
        may be the whole card."""
        return None if self.demand_can_change(pod) else self.held(pod)

    def constraints(self, pod: Pod) -> Constraints:
        """The constraints in the dialect's own annotations and labels, even on pods of other dialects. Raises
        BadDemand."""
        return NO_CONSTRAINTS

    def capacity(self, node: Node) -> NodeGpus | None:
        """The cards of a node that publishes no inventory, with ids `node/index`; None if it has none."""
        return None

    @abstractmethod
    def read_back(self, pod: Pod, cards: NodeGpus) -> Placement | None:
        """The placement in the dialect's own annotations of a bound pod, as the original wrote them.

        Raises BadRecord if the keys are present but cannot be read.
        """

    def repeats(self, pod: Pod, record: Placement) -> bool:
        """Whether the dialect's own annotations surely name the same cards as our record, which has as many as the pod
        asks for. Nobody needs to read them then: most pods of a large cluster are like that."""
        return False

    def unrecorded(self, pod: Pod, cards: NodeGpus) -> Sequence[Gpu]:
        """A running pod without any record may have one of these cards."""
        return cards.gpus

    # -- writing

    @abstractmethod
    def annotations(
        self, pod: Pod, request: Request, placement: Placement, cards: NodeGpus, now_ns: int
    ) -> Mapping[str, str]:
        """The dialect's own keys next to `aliquot.io/placement`, exactly as the original writes them at bind."""

    def labels(self, pod: Pod, request: Request, placement: Placement, cards: NodeGpus) -> Mapping[str, str]:
        """Labels that the original writes next to the annotations."""
        return {}

    def written_on(self, pod: Pod) -> Mapping[str, str]:
        """The dialect's placement keys that a pod has as annotations."""
        names = {key for key in self.placement_keys if not key.endswith("*")}
        beginnings = tuple(key[:-1] for key in self.placement_keys if key.endswith("*"))
        return {
            key: value
            for key, value in pod.metadata.annotations.items()
            if key in names or (beginnings and key.startswith(beginnings))
        }

    def handed_over(self, pod: Pod) -> bool:
        """Whether a container that asks for cards has run, or the pod has the mark, which users can write or remove."""
        return pod.has_run(self.guards) or self.is_marked(pod)

    def is_marked(self, pod: Pod) -> bool:
        """Whether the pod has the dialect's own mark of a hand-over. Always false in a dialect without such a mark."""
        return False

    def hand_over_marks(self, pod: Pod, now_ns: int) -> Mapping[str, str]:
        """The keys that change when the node has handed over the cards to the pod."""
        return {}

    def words(self, reason: Reason) -> str:
        """A refusal in the original's words, without node names or changing numbers."""
        return reason.value

    def words_for(self, reason: Reason, cards: NodeGpus, request: Request) -> str:
        """The refusal of one node, with its model if the reason is about that. It changes only when the reason does."""
        if reason not in OF_MODEL:
            return self.words(reason)
        wanted = (gpu.model for gpu in cards.gpus if request.constraints.allows_model(gpu.model))
        models = [cards.model] if cards.model else sorted(set(wanted))
        return f"{self.words(reason)} ({', '.join(models)})"

    def exact_words(self, reason: Reason, node: str, uid: str) -> str:
        """A refusal exactly as the original phrases it for this node and this pod."""
        original = self.original_words.get(reason)
        return self.words(reason) if original is None else original.format(node=node, uid=uid)

    # -- on the node

    @abstractmethod
    def device_ids(self, resource: str, cards: NodeGpus) -> Sequence[tuple[str, str]]:
        """Every (id, uuid) that the device plugin of one resource offers. kubelet hands them out in any order: only
        their number matters."""

    def card_in(self, device_id: str) -> str:
        """The uuid of the card in a device id of the original's plugin, if its ids name cards."""
        return device_id

    def environment(
        self, pod: Pod, request: Request, container: str, placement: Placement, cards: NodeGpus
    ) -> Mapping[str, str]:
        """The environment variables of the container, in addition to the device nodes."""
        return {"NVIDIA_VISIBLE_DEVICES": ",".join(part.uuid for part in placement.containers[container])}

    # -- showing

    @abstractmethod
    def sample_pod(self) -> Mapping[str, Any]:
        """A pod manifest that a user of this dialect would write."""

    def sample_workload(self) -> Mapping[str, Any]:
        """The manifest that the original's guide shows for such a pod: the pod itself, or a Deployment or Job."""
        return self.sample_pod()


def memory_given(placement: Placement, container: str) -> Mapping[str, str]:
    """How much memory a container has on each of its cards, for a dialect whose original does not tell. Programs set
    their framework's limit by it."""
    return {"ALIQUOT_MEMORY_MIB": ",".join(str(part.mib) for part in placement.containers[container])}


# -- what most dialects need to read


def asks_any(pod: Pod, is_ours: Callable[[str], bool]) -> bool:
    """Whether a pod asks for more than 0 of any such resource. An unreadable amount counts as asked for, so that the
    user gets an error."""
    return any(container.asks_any(is_ours) for container, _ in pod.containers())


def limit(container: Container, resource: str) -> int:
    """How much of a resource a container asks for. Raises BadDemand, which names both."""
    amount = container.limits.get(resource)
    if amount is None:
        return 0
    try:
        return whole(str(amount))
    except BadQuantity as error:
        raise BadDemand(f"container {container.name}, limits, {resource}: {error}") from error


def advice_for_bytes(container: Container, resource: str, unit: int) -> str:
    """What to write instead of an amount in bytes, if the resource counts units of so many bytes."""
    return f"write {-(-limit(container, resource) // unit)}, not {container.limits[resource]}"


def places(pod: Pod) -> Mapping[str, int]:
    """The position of each container in its own list of the pod's spec, by name."""
    lists = (pod.spec.init_containers or (), pod.spec.containers)
    return {container.name: place for containers in lists for place, container in enumerate(containers)}


def cards_asked(container: Container, resource: str) -> int:
    """How many cards a container asks for. Raises BadDemand, also if no node has that many."""
    count = limit(container, resource)
    if count > MAX_CARDS:
        raise BadDemand(
            f"container {container.name}, limits, {resource}: {count} is more than any node has; it counts cards: "
            "write 1"
        )
    return count


def names_in(key: str, text: str, error: type[BadInput] = BadDemand) -> tuple[str, ...]:
    """The distinct non-empty items of an annotation's comma-separated list of models or cards. Raises `error` if there
    are too many."""
    require_size(f"annotation {key}", text, LARGEST_CONSTRAINT, error)
    names = tuple(dict.fromkeys(name for item in text.split(",") if (name := item.strip())))
    if len(names) > MAX_NAMES:
        raise error(f"annotation {key} has {len(names)} names; write at most {MAX_NAMES}")
    return names


def plain_number(text: str) -> int | None:
    """A number in plain digits, as annotations and labels hold it. None for anything else, or if it is absurdly
    large."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def capacity_of(node: Node, resource: str) -> int:
    """A node's capacity of a resource; 0 if it has none, or if the amount cannot be read."""
    return _amount(node.status.capacity, resource)


def allocatable_of(node: Node, resource: str) -> int:
    """A node's allocatable amount of a resource: less than its capacity while devices are unhealthy, 0 while their
    plugin is gone."""
    return _amount(node.status.allocatable, resource)


def _amount(resources: Mapping[str, Quantity] | None, name: str) -> int:
    try:
        return whole(str((resources or {}).get(name, 0)))
    except BadQuantity:
        return 0


def equal_cards(
    node: Node,
    count: int,
    mib: int,
    unit_mib: int = 1,
    model: str = "unknown",
    *,
    least_mib: int = 1,
    rest_mib: int = 0,
) -> NodeGpus | None:
    """A node whose original plugin reports only the number of cards and the size of each; None if it has none. Raises
    BadRecord for more cards than any node has."""
    if not count or mib < least_mib:
        return None
    if count > MAX_CARDS or mib > MAX_MIB:
        raise BadRecord(
            f"status.capacity counts {count} cards of {mib} MiB; no node has more than {MAX_CARDS} cards of "
            f"{MAX_MIB} MiB"
        )
    name = node.metadata.name
    gpus = (Gpu(made_up_uuid(name, index), index, index, model, mib) for index in range(count))
    return NodeGpus(name, tuple(gpus), unit_mib, rest_mib=rest_mib)


def card_numbers(key: str, text: str) -> tuple[int, ...]:
    """Card indexes in an annotation, `0` or `0,3`. Raises BadRecord, which names the key."""
    require_size(key, text, LARGEST_RECORD, BadRecord)
    items = text.split(",")
    numbers = tuple(number for item in items if (number := plain_number(item)) is not None)
    if len(set(numbers)) < len(items):
        raise BadRecord(f"{key}: {text[:64]!r} is not a list of distinct card numbers")
    return numbers


def card_at(key: str, index: int, cards: NodeGpus) -> Gpu:
    gpu = cards.by_index.get(index)
    if gpu is None:
        raise BadRecord(f"{key} names card {index}, which node {cards.node} does not have")
    return gpu


def card_called(key: str, uuid: str, cards: NodeGpus) -> Gpu:
    gpu = cards.by_uuid.get(uuid)
    if gpu is None:
        raise BadRecord(f"{key} names card {uuid[:64]!r}, which node {cards.node} does not have")
    return gpu


def placed_on(request: Request, gpus: Mapping[str, Sequence[Gpu]], cards: NodeGpus) -> Placement:
    """The placement in which each container has its part of each of its cards."""
    slices = {
        container.name: tuple(cut(container.part, gpu, cards.unit_mib) for gpu in gpus[container.name])
        for container in request.containers
    }
    return Placement(cards.node, request.dialect, slices)


# -- showing


def sample(
    name: str,
    limits: Mapping[str, Any],
    *,
    container: str = "main",
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    seconds: int = 3600,
) -> dict[str, Any]:
    """A pod manifest with one container that sleeps for a while."""
    more = {"labels": labels, "annotations": annotations}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **{key: value for key, value in more.items() if value}},
        "spec": {
            "containers": [
                {
                    "name": container,
                    "image": "docker.io/library/busybox:1",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", str(seconds)],
                    "resources": {"limits": dict(limits)},
                }
            ]
        },
    }
