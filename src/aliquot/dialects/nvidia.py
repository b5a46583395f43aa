"""nvidia: whole cards, `nvidia.com/gpu`, and static MIG instances, `nvidia.com/mig-<profile>`; an annotation names
models."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from aliquot.dialects.card_labels import label_value, only_model
from aliquot.dialects.hami_records import (
    ALLOCATED,
    PHASE,
    REGISTER,
    TO_ALLOCATE,
    is_handed_over,
    read_devices,
    write_handed_over,
    write_label,
    write_placed,
)
from aliquot.dialects.protocol import (
    Dialect,
    Resource,
    asks_any,
    capacity_of,
    card_called,
    cards_asked,
    equal_cards,
    limit,
    names_in,
    plain_number,
    sample,
)
from aliquot.errors import BadDemand
from aliquot.model import (
    NO_CONSTRAINTS,
    Constraints,
    Container,
    ContainerRequest,
    ModelConstraint,
    Node,
    NodeGpus,
    Part,
    Placement,
    Pod,
    Request,
)

PARTS = ("gpumem", "gpumem-percentage", "gpucores")
"""Names under the prefix that ask for a part of each card. A pod with any of them speaks hami."""

MIG_PROFILES = (
    *("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    *("1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    *("1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb"),
    *("1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"),
    *("1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    *("1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
)
"""The profiles of A100, A30, H100, H200 and B200. A pod may ask for others. These are declared so that schedulers can
be configured for them."""
_PROFILE = re.compile(r"((?:\d+c\.)?\d+g\.\d+gb)(?:\.([a-z.]+))?")

_WHOLE = ""
"""The kind of whole cards; every other kind is a MIG profile."""

_HAMI = "hami"

_UNKNOWN_MIB = 1
"""Nothing says how large the card is, so it can only be sold whole."""


class Nvidia(Dialect):
    name = "nvidia"
    standard_prefix = "nvidia.com"
    node_labels = {"nodeinfo": "gpu"}
    node_policy = "free-count"
    shares_resources_with = _HAMI
    names_cards = False

    # -- names

    @property
    def gpu(self) -> str:
        return f"{self.prefix}/gpu"

    @property
    def gpu_model(self) -> str:
        """Annotation: the models that are acceptable."""
        return f"{self.prefix}/gpu.model"

    def mig(self, profile: str) -> str:
        return _mig(self.prefix, profile)

    @property
    def resources(self) -> Sequence[Resource]:
        return (
            Resource(self.gpu, "a whole card", "nvidia-gpu.sock"),
            *mig_resources(self.prefix),
        )

    @property
    def placement_keys(self) -> Sequence[str]:
        return (ALLOCATED, TO_ALLOCATE)

    @property
    def guarded_resources(self) -> Sequence[str]:
        return (self.gpu, self.mig("*"))

    # -- reading

    def speaks(self, pod: Pod) -> bool:
        """Whether the pod asks for whole cards or MIG instances, and for no parts of cards."""
        return asks_any(pod, self._is_ours) and not names_parts(pod, self.prefix)

    def mentions(self, pod: Pod) -> bool:
        return False  # charts write 0 for "no GPU"

    def _is_ours(self, resource: str) -> bool:
        return resource == self.gpu or resource.startswith(self.mig(""))

    def demand(self, pod: Pod) -> Request:
        for container, _ in pod.containers():
            check_priority(container, f"{self.prefix}/priority")
        kinds = self._kinds(pod)
        profiles = sorted(kinds - {_WHOLE})
        if len(profiles) > 1:
            raise BadDemand(
                f"the pod asks for {', '.join(map(self.mig, profiles))}; one pod can have instances of one profile only"
            )
        if len(kinds) > 1:
            raise BadDemand(
                f"{self.gpu}: the pod also asks for {self.mig(*profiles)}; "
                "one pod can have whole cards or MIG instances, not both"
            )
        return self.held(pod)

    def held(self, pod: Pod) -> Request:
        containers = (
            ContainerRequest(container.name, Part(cards=count, whole=True), life)
            for container, life in pod.containers()
            if (count := sum(self._cards(container).values()))
        )
        request, kinds = self.request(pod, containers), self._kinds(pod)
        # a request is for one kind: if a pod has several kinds, no card can be attributed to it
        constraints = Constraints(mig="".join(kinds)) if len(kinds) == 1 else Constraints(only_uuids=frozenset())
        return replace(request, constraints=constraints)

    def _kinds(self, pod: Pod) -> set[str]:
        return {kind for container, _ in pod.containers() for kind in self._cards(container)}

    def _cards(self, container: Container) -> Mapping[str, int]:
        """How many cards or instances a container asks for, by kind. Raises BadDemand."""
        asked = {name: cards_asked(container, name) for name in container.limits if self._is_ours(name)}
        return {self._kind(container, name): count for name, count in asked.items() if count}

    def _kind(self, container: Container, resource: str) -> str:
        if resource == self.gpu:
            return _WHOLE
        match = _PROFILE.fullmatch(resource.removeprefix(self.mig("")))
        if match is None:
            raise BadDemand(
                f"container {container.name}, limits, {resource[:80]}: this is not a MIG profile; "
                f"write it as in {self.mig('1g.5gb')}"
            )
        size, extras = match.groups()
        return f"{size}+{extras}" if extras else size

    def constraints(self, pod: Pod) -> Constraints:
        text = pod.metadata.annotations.get(self.gpu_model)
        if text is None:
            return NO_CONSTRAINTS
        named = names_in(self.gpu_model, text)
        names = tuple(name for name in named if any(letter.isalnum() for letter in name))
        if not names:
            raise BadDemand(
                f"annotation {self.gpu_model}: {text[:64]!r} names no model; write one, such as A100, or several: "
                "A100,V100; or leave the annotation out"
            )
        return Constraints(models=(ModelConstraint(names),))

    def capacity(self, node: Node) -> NodeGpus | None:
        """The cards as NVIDIA's plugin and its feature discovery report them. Such a node only hands out whole
        cards."""
        if REGISTER in node.metadata.annotations:
            return None  # the node offers HAMi's shares
        labels = node.metadata.labels
        model = labels.get(f"{self.prefix}/gpu.product", "").removesuffix("-SHARED") or "unknown"
        mib = plain_number(labels.get(f"{self.prefix}/gpu.memory", "")) or _UNKNOWN_MIB
        replicas = plain_number(labels.get(f"{self.prefix}/gpu.replicas", "")) or 1
        cards = equal_cards(node, capacity_of(node, self.gpu) // replicas, mib, model=model)
        return replace(cards, dialects=frozenset((self.name,))) if cards else None

    @property
    def card_label_keys(self) -> Sequence[str]:
        return [f"{self.prefix}/gpu.{name}" for name in ("count", "product", "memory")]

    def card_labels(self, cards: NodeGpus) -> Mapping[str, str]:
        """As NVIDIA's feature discovery writes them. A node with several models has only the number of its cards."""
        count, product, memory = self.card_label_keys
        labels = {count: str(sum(not gpu.parent for gpu in cards.gpus))}
        if model := only_model(cards):
            mib = min(gpu.mib for gpu in cards.gpus if not gpu.parent)
            labels |= {product: label_value(model), memory: str(mib)}
        return labels

    def read_back(self, pod: Pod, cards: NodeGpus) -> Placement | None:
        """The original writes nothing: only kubelet knows which cards a pod has. HAMi places such pods too, and records
        the cards."""
        return read_devices(pod, self.held(pod), cards)

    # -- writing

    def annotations(
        self, pod: Pod, request: Request, placement: Placement, cards: NodeGpus, now_ns: int
    ) -> Mapping[str, str]:
        """NVIDIA's plugin writes nothing. HAMi records whole cards, too, so that it counts them, but no static
        instances."""
        if not _is_as_hami(request, cards):
            return {}
        sizes = {
            name: [(gpu, gpu.mib) for part in parts for gpu in (card_called("the placement", part.uuid, cards),)]
            for name, parts in placement.containers.items()
        }
        return write_placed(pod, request, placement, sizes, now_ns)

    def labels(self, pod: Pod, request: Request, placement: Placement, cards: NodeGpus) -> Mapping[str, str]:
        return write_label(placement) if _is_as_hami(request, cards) else {}

    def hand_over_marks(self, pod: Pod, now_ns: int) -> Mapping[str, str]:
        """Only HAMi's keys change."""
        is_waiting = PHASE in pod.metadata.annotations and not is_handed_over(pod)
        return write_handed_over(pod, self.held(pod)) if is_waiting else {}

    # -- on the node

    def device_ids(self, resource: str, cards: NodeGpus) -> Sequence[tuple[str, str]]:
        if resource == self.gpu:
            return [(gpu.uuid, gpu.uuid) for gpu in cards.offered]
        return instance_ids(resource, self.prefix, cards)

    def card_in(self, device_id: str) -> str:
        """NVIDIA's plugin puts `::` and a number behind the uuid of a card that it hands out several times."""
        return device_id.partition("::")[0]

    # -- showing

    def sample_pod(self) -> Mapping[str, Any]:
        annotations = {self.gpu_model: "Tesla T4,A10,A100"}
        return sample("one-whole-gpu", {self.gpu: "1"}, container="cuda", annotations=annotations)


def mig_resources(prefix: str) -> Sequence[Resource]:
    return [
        Resource(_mig(prefix, profile), f"a whole MIG instance {profile}", f"nvidia-mig-{profile}.sock")
        for profile in MIG_PROFILES
    ]


def _mig(prefix: str, profile: str) -> str:
    """The resource of a profile. NVIDIA's plugin writes its `+` as a dot."""
    return f"{prefix}/mig-{profile.replace('+', '.')}"


def instance_ids(resource: str, prefix: str, cards: NodeGpus) -> Sequence[tuple[str, str]]:
    """The device ids of a profile: the uuids of its instances."""
    return [(gpu.uuid, gpu.uuid) for gpu in cards.gpus if gpu.parent and _mig(prefix, gpu.profile) == resource]


def _is_as_hami(request: Request, cards: NodeGpus) -> bool:
    """Whether HAMi would record a placement: whole cards of a node that serves its dialect."""
    return _HAMI in cards.dialects and not request.constraints.mig


def names_parts(pod: Pod, prefix: str) -> bool:
    """Whether a pod names a part of a card. Then it speaks hami, not nvidia."""
    names = _part_names(prefix)
    return any(not names.isdisjoint(container.limits) for container, _ in pod.containers())


@cache
def _part_names(prefix: str) -> frozenset[str]:
    return frozenset(f"{prefix}/{part}" for part in PARTS)


def check_priority(container: Container, resource: str) -> None:
    """HAMi's priority, which is also allowed with whole cards. Raises BadDemand for a value that HAMi-core does not
    know."""
    if limit(container, resource) > 1:
        raise BadDemand(f"container {container.name}, limits, {resource}: write 0 for high or 1 for low")
