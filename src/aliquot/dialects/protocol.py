"""What a dialect declares. Agent, control plane, endpoints and demo read it and know no vendor's name themselves.

A dialect is a subclass in one module: what it must say is abstract, the rest has defaults that fit most vocabularies.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from aliquot.errors import BadConfig, BadDemand, BadInput, BadQuantity, BadRecord
from aliquot.model import (
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
from aliquot.model.bounds import LARGEST_RECORD, LARGEST_WISH, MAX_CARDS, MAX_MIB, MAX_NAMES, require_size
from aliquot.model.kubernetes import Quantity
from aliquot.model.quantity import whole

_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_LONGEST_PREFIX = 253


@dataclass(frozen=True, slots=True)
class Resource:
    """An extended resource of a dialect: its name, what 1 of it means, and the file name of its device plug-in's socket
    as the original's; without one it is not offered to kubelet."""

    name: str
    unit: str
    socket: str = ""


class Dialect(ABC):
    name: ClassVar[str]
    standard_prefix: ClassVar[str]
    """Of its resources and annotations; a cluster may configure another."""
    node_labels: ClassVar[Mapping[str, str]] = {}
    """Labels by which the original marks its nodes; `dialect.aliquot.io/<name>=true` always works."""
    node_policy: str = "binpack"
    gpu_policy: str = "binpack"
    """The default policies, by their names in the engine's tables."""
    model_labels: Sequence[str] = ()
    pool_labels: Sequence[str] = ()
    """Node labels that name the model and the pool of a node's cards for quotas; the first that is there counts."""
    names_cards: ClassVar[bool] = True
    """Whether a pod's record says which cards it has; where kubelet alone knows, the pod counts by their number."""
    allocator: ClassVar[str] = ""
    """The GPU policy by which the original's agent chooses cards for one container after another, and writes them down,
    where no scheduler has; empty if it only obeys."""
    slots: ClassVar[int] = 0
    """Into how many MPS parts the cards of a node that serves it are cut."""
    original_words: ClassVar[Mapping[Reason, str]] = {}
    """Refusals that the original words in another way than `words`, with `{node}` and `{uid}` where it names them."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix or self.standard_prefix
        if len(self.prefix) > _LONGEST_PREFIX or not _PREFIX.fullmatch(self.prefix):
            raise BadConfig(
                f"prefix of dialect {self.name}: {prefix[:64]!r} is not the first half of a resource name; "
                f"write a domain in small letters, such as example.com, of at most {_LONGEST_PREFIX} letters"
            )

    @property
    def agent_chooses(self) -> bool:
        return bool(self.allocator)

    # -- names

    @property
    @abstractmethod
    def resources(self) -> Sequence[Resource]:
        """Every resource by which a pod speaks this dialect. Those with a socket are offered to kubelet, and the first
        of these that a container asks for brings its devices."""

    @property
    def resource(self) -> str:
        """The resource that every node of the dialect offers."""
        return self.resources[0].name

    @property
    def card_resources(self) -> Sequence[str]:
        """The resources each of which gets a container cards; a pod that asks for none of them is told their names."""
        return (self.resource,)

    @property
    @abstractmethod
    def placement_keys(self) -> Sequence[str]:
        """The annotations and labels that say where a pod was put; one that ends in `*` stands for all that begin so.
        Users may not write them."""

    @property
    def size_keys(self) -> Sequence[str]:
        """The annotations and labels in which users say how much a pod gets, written alike. Users may not change them
        once the pod is bound."""
        return ()

    @property
    def mark_keys(self) -> Sequence[str]:
        """The annotations that the node's agent writes when it has handed the cards over, written alike."""
        return tuple(self.hand_over_marks(msgspec.convert(self.sample_pod(), Pod), 0))

    @property
    def guarded_resources(self) -> Sequence[str]:
        """The resources, written alike, that make a pod one whose keys are guarded; there is no other knowledge of
        the dialect where they are compared, in the API server."""
        return [resource.name for resource in self.resources]

    def guards(self, resource: str) -> bool:
        return any(is_like(pattern, resource) for pattern in self.guarded_resources)

    # -- reading what is asked and what there is

    def speaks(self, pod: Pod) -> bool:
        """Whether the pod asks for more than 0 of a resource of this dialect."""
        names = {resource.name for resource in self.resources}
        return asks_any(pod, lambda resource: resource in names)

    def mentions(self, pod: Pod) -> bool:
        """Whether a pod that asks for nothing means this dialect, and is to be told so: it names 0 of a resource."""
        return bool(self._named(pod))

    def _named(self, pod: Pod) -> Mapping[str, Quantity]:
        """The resources of this dialect that the pod's containers name, and what the last of them writes."""
        names = {resource.name for resource in self.resources}
        written = (item for container, _ in pod.containers() for item in container.limits.items())
        return {name: amount for name, amount in written if name in names}

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
        """What a bound pod holds, counted as the original counts it: it may ask what we would not place."""
        return self.demand(pod)

    def demand_can_change(self, pod: Pod) -> bool:
        """Whether a part of the demand is in annotations or labels, which users may rewrite on a running pod. Its
        record then says at least as much as the demand."""
        return False

    def by_spec(self, pod: Pod) -> Request | None:
        """The most that a bound pod can have of one card, by its spec alone, which nobody can rewrite; None if that may
        be all of the card."""
        return None if self.demand_can_change(pod) else self.held(pod)

    def constraints(self, pod: Pod) -> Constraints:
        """What the dialect's own annotations and labels wish, also on pods of other dialects. Raises BadDemand."""
        return Constraints()

    def capacity(self, node: Node) -> NodeGpus | None:
        """The cards of a node that publishes no inventory, with ids `node/index`; None if it has none."""
        return None

    @abstractmethod
    def read_back(self, pod: Pod, cards: NodeGpus) -> Placement | None:
        """The placement in the dialect's own annotations of a bound pod, as its original wrote them.

        Raises BadRecord for keys that are there and cannot be read."""

    def unrecorded(self, pod: Pod, cards: NodeGpus) -> Sequence[Gpu]:
        """The cards of which a pod may have one that runs and on which nobody has written down any."""
        return cards.gpus

    # -- writing

    @abstractmethod
    def annotations(
        self, pod: Pod, request: Request, placement: Placement, cards: NodeGpus, now_ns: int
    ) -> Mapping[str, str]:
        """The dialect's own keys beside `aliquot.io/placement`, exactly as its original writes them at bind."""

    def labels(self, pod: Pod, request: Request, placement: Placement, cards: NodeGpus) -> Mapping[str, str]:
        """Labels that the original writes beside the annotations."""
        return {}

    def written_on(self, pod: Pod) -> Mapping[str, str]:
        """The dialect's placement keys that stand on a pod as annotations."""
        names = {key for key in self.placement_keys if not key.endswith("*")}
        beginnings = tuple(key[:-1] for key in self.placement_keys if key.endswith("*"))
        return {
            key: value
            for key, value in pod.metadata.annotations.items()
            if key in names or (beginnings and key.startswith(beginnings))
        }

    def handed_over(self, pod: Pod) -> bool:
        """Whether the node has given the pod its cards: a container that asks for them runs, whatever became of the
        mark, which users can take away."""
        return pod.has_run(self.guards) or self.is_marked(pod)

    def is_marked(self, pod: Pod) -> bool:
        """Whether the dialect's own mark of a hand-over is on the pod; never in a dialect without one."""
        return False

    def hand_over_marks(self, pod: Pod, now_ns: int) -> Mapping[str, str]:
        """The keys that change when the node has handed the cards to the pod."""
        return {}

    def words(self, reason: Reason) -> str:
        """A refusal in the original's words, without node names or changing numbers."""
        return reason.value

    def words_for(self, reason: Reason, cards: NodeGpus, request: Request) -> str:
        """The same of one node, with its model where the reason is about that. As constant as the verdict."""
        if reason not in OF_MODEL:
            return self.words(reason)
        wanted = (gpu.model for gpu in cards.gpus if request.constraints.allows_model(gpu.model))
        models = [cards.model] if cards.model else sorted(set(wanted))
        return f"{self.words(reason)} ({', '.join(models)})"

    def exact_words(self, reason: Reason, node: str, uid: str) -> str:
        """A refusal exactly as the original says it of this node to this pod."""
        original = self.original_words.get(reason)
        return self.words(reason) if original is None else original.format(node=node, uid=uid)

    # -- on the node

    @abstractmethod
    def device_ids(self, resource: str, cards: NodeGpus) -> Sequence[tuple[str, str]]:
        """Every (id, uuid) that the device plug-in of one resource offers. kubelet hands them out mixed: they only
        count."""

    def environment(
        self, pod: Pod, request: Request, container: str, placement: Placement, cards: NodeGpus
    ) -> Mapping[str, str]:
        """What the container finds in its environment, beside the device nodes."""
        return {"NVIDIA_VISIBLE_DEVICES": ",".join(part.uuid for part in placement.containers[container])}

    # -- showing

    @abstractmethod
    def sample_pod(self) -> Mapping[str, Any]:
        """A pod manifest that a user of this dialect would write."""

    def sample_workload(self) -> Mapping[str, Any]:
        """What the original's guide has its users write for such a pod: the pod itself, or a Deployment or Job."""
        return self.sample_pod()


# -- what most dialects need to read


def asks_any(pod: Pod, is_ours: Callable[[str], bool]) -> bool:
    """Whether a pod asks for more than 0 of any such resource. What cannot be read is asked for: somebody must say
    so."""
    return any(container.asks_any(is_ours) for container, _ in pod.containers())


def is_like(pattern: str, name: str) -> bool:
    """Whether a name is the pattern's; one that ends in `*` stands for all that begin so."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def limit(container: Container, resource: str) -> int:
    """How much of a resource a container asks for. Raises BadDemand that names both."""
    try:
        return whole(str(container.limits.get(resource, 0)))
    except BadQuantity as error:
        raise BadDemand(f"container {container.name}, limits, {resource}: {error}") from error


def places(pod: Pod) -> Mapping[str, int]:
    """Where each container stands in its own list of the pod's spec, by name."""
    lists = (pod.spec.init_containers or (), pod.spec.containers)
    return {container.name: place for containers in lists for place, container in enumerate(containers)}


def cards_asked(container: Container, resource: str) -> int:
    """How many cards a container asks for. Raises BadDemand, also for more than any node has."""
    count = limit(container, resource)
    if count > MAX_CARDS:
        raise BadDemand(f"container {container.name}, limits, {resource}: {count} is absurd; it counts cards: write 1")
    return count


def names_in(key: str, text: str, error: type[BadInput] = BadDemand) -> tuple[str, ...]:
    """The different items of an annotation's comma list of models or cards, without empty ones. Raises `error` for more
    than are read."""
    require_size(f"annotation {key}", text, LARGEST_WISH, error)
    names = tuple(dict.fromkeys(name for item in text.split(",") if (name := item.strip())))
    if len(names) > MAX_NAMES:
        raise error(f"annotation {key} has {len(names)} names; write at most {MAX_NAMES}")
    return names


def plain_number(text: str) -> int | None:
    """A number in plain digits, as annotations and labels hold it; None for anything else, or an absurd one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def capacity_of(node: Node, resource: str) -> int:
    """How much of a resource a node has; 0 if it has none or says nonsense."""
    return _amount(node.status.capacity, resource)


def allocatable_of(node: Node, resource: str) -> int:
    """How much of it kubelet gives to pods: less while devices are unhealthy, nothing while their plug-in is gone."""
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
    """A node whose original plug-in tells only how many cards there are and how large each is; None without any.
    Raises BadRecord for more than any node has."""
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
    """Card indexes in an annotation, `0` or `0,3`. Raises BadRecord that names the key."""
    require_size(key, text, LARGEST_RECORD, BadRecord)
    items = text.split(",")
    numbers = tuple(number for item in items if (number := plain_number(item)) is not None)
    if len(set(numbers)) < len(items):
        raise BadRecord(f"{key}: {text[:64]!r} is not a list of different card numbers")
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
    """The placement in which each container has what it asks for of each of its cards."""
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
    """A pod manifest with one container, which sleeps for a while."""
    more = {"labels": labels, "annotations": annotations}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **{key: value for key, value in more.items() if value}},
        "spec": {
            "containers": [
                {
                    "name": container,
                    "image": "docker.io/local/busybox:1",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", str(seconds)],
                    "resources": {"limits": dict(limits)},
                }
            ]
        },
    }
