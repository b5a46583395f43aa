"""tencent: parts of one card by cores and memory, or whole cards; `tencent.com/vcuda-core` and `vcuda-memory`."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from aliquot.dialects.card_labels import label_value, only_model, short_model
from aliquot.dialects.percent import whole_cards
from aliquot.dialects.protocol import (
    Dialect,
    Resource,
    capacity_of,
    card_numbers,
    equal_cards,
    limit,
    memory_given,
    placed_on,
    places,
    plain_number,
    sample,
)
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
)
from aliquot.model.bounds import MAX_BLOCKS

BLOCK_MIB = 256
_BLOCK_BYTES = BLOCK_MIB * 2**20
_NO_MATCH = "pod does not match with this node"
_QUOTA = "ExceedsGPUQuota"

_WORDS = {
    Reason.NO_GPUS: "no GPU device",
    Reason.NO_CARD_FITS: f"{_NO_MATCH}: {Reason.NO_CARD_FITS.value}",
    Reason.TOO_LARGE: f"{_NO_MATCH}: {Reason.TOO_LARGE.value}",
    Reason.NOT_SELLABLE: f"{_NO_MATCH}: {Reason.NOT_SELLABLE.value}",
    Reason.WRONG_POOL: f"{_QUOTA}: {Reason.WRONG_POOL.value}",
    Reason.NOT_IN_QUOTA: f"{_QUOTA}: {Reason.NOT_IN_QUOTA.value}",
    Reason.OVER_QUOTA: f"{_QUOTA}: {Reason.OVER_QUOTA.value}",
}


_EXACT_NO_MATCH = "pod {uid} does not match with this node"
_ORIGINAL_WORDS = {
    Reason.NO_CARD_FITS: _EXACT_NO_MATCH,
    Reason.TOO_LARGE: _EXACT_NO_MATCH,
    Reason.NOT_SELLABLE: _EXACT_NO_MATCH,
    Reason.WRONG_POOL: _QUOTA,
    Reason.NOT_IN_QUOTA: _QUOTA,
    Reason.OVER_QUOTA: _QUOTA,
}


class Tencent(Dialect):
    name = "tencent"
    standard_prefix = "tencent.com"
    node_labels = {"nvidia-device-enable": "enable"}
    node_policy = "admission"
    gpu_policy = "admission"
    allocator = "admission"
    original_words = _ORIGINAL_WORDS
    model_labels = ("gaia.tencent.com/gpu-model", "tkestack.io/gpu-model")
    pool_labels = ("gaia.tencent.com/gpu-pool", "tkestack.io/gpu-pool")

    # -- names

    @property
    def vcuda_core(self) -> str:
        return f"{self.prefix}/vcuda-core"

    @property
    def vcuda_memory(self) -> str:
        return f"{self.prefix}/vcuda-memory"

    @property
    def core_limit(self) -> str:
        """Annotation: how far the pod's containers may burst while their card is idle, in percent."""
        return f"{self.prefix}/vcuda-core-limit"

    @property
    def predicate_node(self) -> str:
        return f"{self.prefix}/predicate-node"

    @property
    def predicate_time(self) -> str:
        return f"{self.prefix}/predicate-time"

    @property
    def gpu_assigned(self) -> str:
        return f"{self.prefix}/gpu-assigned"

    def predicate_index(self, place: int | str) -> str:
        """Annotation: the cards of the container at this position of `spec.containers`."""
        return f"{self.prefix}/predicate-gpu-idx-{place}"

    @property
    def resources(self) -> Sequence[Resource]:
        return (
            Resource(self.vcuda_core, "a percent of a card's cores; 100 is a whole card", "vcore.sock"),
            Resource(self.vcuda_memory, f"a block of {BLOCK_MIB} MiB", "vmemory.sock"),
        )

    @property
    def placement_keys(self) -> Sequence[str]:
        return (self.predicate_index("*"), self.predicate_node, self.predicate_time, self.gpu_assigned)

    # -- reading

    def mentions(self, pod: Pod) -> bool:
        """As in the original, a pod that asks for 0 is a pod without GPU."""
        return False

    def demand(self, pod: Pod) -> Request:
        self._refuse_init_containers(pod)
        burst = self._burst(pod)
        return self._request(pod, lambda container: self._asked(container, burst))

    def held(self, pod: Pod) -> Request:
        return self._request(pod, self._counted)

    def _request(self, pod: Pod, part_of: Callable[[Container], Part | None]) -> Request:
        asked = (
            ContainerRequest(container.name, part)
            for container in pod.spec.containers
            if (part := part_of(container)) is not None
        )
        return self.request(pod, asked)

    def _asked(self, container: Container, burst: int | None) -> Part | None:
        """What a container asks for. Raises BadDemand for a demand that the original would accept and never start."""
        cores, blocks = limit(container, self.vcuda_core), limit(container, self.vcuda_memory)
        core_field = f"container {container.name}, limits, {self.vcuda_core}"
        memory_field = f"container {container.name}, limits, {self.vcuda_memory}"
        if blocks > MAX_BLOCKS:
            raise BadDemand(
                f"{memory_field}: {blocks} is more than any GPU has; it counts blocks of {BLOCK_MIB} MiB: "
                "for 8 GiB write 32, not 8Gi"
            )
        if blocks and not cores:
            raise BadDemand(
                f"{memory_field}: memory alone gets no card; also write {self.vcuda_core}, "
                f"1 to {CORES - 1} for a part of a card or {CORES} for all of it"
            )
        if cores >= CORES:
            return Part(cards=whole_cards(core_field, cores), whole=True)
        if cores and not blocks:
            raise BadDemand(
                f"{core_field}: {cores} is a part of a card and needs memory; also write {self.vcuda_memory} "
                f"of at least 1 (blocks of {BLOCK_MIB} MiB), or {CORES} for the whole card"
            )
        if burst is not None and cores > burst:
            raise BadDemand(
                f"annotation {self.core_limit}: {burst} is below the {cores} that container {container.name} asks of "
                f"{self.vcuda_core}; write {cores} to {CORES}, or leave it out"
            )
        return Part(cores=cores, memory=Memory(blocks * BLOCK_MIB), cores_limit=burst) if cores else None

    def _counted(self, container: Container) -> Part | None:
        """What a container of a bound pod holds, as the original counts it: a remainder beyond whole cards is
        dropped."""
        cores, blocks = limit(container, self.vcuda_core), limit(container, self.vcuda_memory)
        if cores >= CORES:
            return Part(cards=cores // CORES, whole=True)
        held = min(blocks, MAX_BLOCKS) * BLOCK_MIB
        return Part(cores=cores, memory=Memory(held)) if cores and blocks else None

    def _burst(self, pod: Pod) -> int | None:
        text = pod.metadata.annotations.get(self.core_limit)
        if text is None:
            return None
        burst = plain_number(text)
        if burst is None or not 1 <= burst <= CORES:
            raise BadDemand(f"annotation {self.core_limit}: {text[:64]!r} is not an integer from 1 to {CORES}")
        return burst

    def _refuse_init_containers(self, pod: Pod) -> None:
        """The original's annotations have no place for init containers, and its node agent never starts such a pod."""
        for container in pod.spec.init_containers or ():
            for resource in self.resources:
                if limit(container, resource.name):
                    raise BadDemand(
                        f"init container {container.name}, limits, {resource.name}: only spec.containers may ask for "
                        "it; move the GPU work into a container there"
                    )

    def capacity(self, node: Node) -> NodeGpus | None:
        count = capacity_of(node, self.vcuda_core) // CORES
        blocks, rest = divmod(capacity_of(node, self.vcuda_memory), count) if count else (0, 0)
        labels = node.metadata.labels
        model = next((labels[label] for label in self.model_labels if label in labels), "unknown")
        return equal_cards(node, count, blocks * BLOCK_MIB, model=model, rest_mib=rest * BLOCK_MIB)

    @property
    def card_label_keys(self) -> Sequence[str]:
        return self.model_labels[:1]

    def card_labels(self, cards: NodeGpus) -> Mapping[str, str]:
        """The model as quotas name it, such as M40. A node with several models has no such label."""
        model = only_model(cards)
        return {key: label_value(short_model(model)) for key in self.card_label_keys} if model else {}

    def read_back(self, pod: Pod, cards: NodeGpus) -> Placement | None:
        """Both of the original's programs write this key. The one on the node reads it as minors, and corrects it."""
        written = pod.metadata.annotations
        if not any(self.predicate_index(place) in written for place in range(len(pod.spec.containers))):
            return None
        request, place, found = self.held(pod), places(pod), {}
        for container in request.containers:
            key = self.predicate_index(place[container.name])
            if key not in written:
                raise BadRecord(f"{key} is missing, but container {container.name} asks for {self.vcuda_core}")
            found[container.name] = [_card(key, minor, cards) for minor in card_numbers(key, written[key])]
        return placed_on(request, found, cards)

    # -- writing

    def annotations(
        self, pod: Pod, request: Request, placement: Placement, cards: NodeGpus, now_ns: int
    ) -> Mapping[str, str]:
        place = places(pod)
        minors = {
            self.predicate_index(place[asked.name]): sorted(part.minor for part in placement.containers[asked.name])
            for asked in request.containers
        }
        return {
            **{key: ",".join(map(str, numbers)) for key, numbers in minors.items()},
            self.predicate_node: placement.node,
            self.predicate_time: str(now_ns),
            self.gpu_assigned: "false",
        }

    def is_marked(self, pod: Pod) -> bool:
        return pod.metadata.annotations.get(self.gpu_assigned) == "true"

    def hand_over_marks(self, pod: Pod, now_ns: int) -> Mapping[str, str]:
        return {self.gpu_assigned: "true"}

    def words(self, reason: Reason) -> str:
        return _WORDS.get(reason, reason.value)

    # -- on the node

    def device_ids(self, resource: str, cards: NodeGpus) -> Sequence[tuple[str, str]]:
        if resource == self.vcuda_core:
            uuids = [gpu.uuid for gpu in cards.offered for _ in range(CORES)]
            return [(f"{resource}-{number}", uuid) for number, uuid in enumerate(uuids)]
        blocks = enumerate(_block_starts(cards.offered))
        return [(f"{resource}-{_BLOCK_BYTES}-{number}", uuid) for number, uuid in blocks]

    # -- showing

    def environment(
        self, pod: Pod, request: Request, container: str, placement: Placement, cards: NodeGpus
    ) -> Mapping[str, str]:
        return {
            **super().environment(pod, request, container, placement, cards),
            **memory_given(placement, container),
        }

    def sample_pod(self) -> Mapping[str, Any]:
        return sample("vcuda", {self.vcuda_core: "50", self.vcuda_memory: "30"}, container="nvidia")


def _card(key: str, minor: int, cards: NodeGpus) -> Gpu:
    """MIG instances have their parent's minor and are never meant."""
    gpu = next((gpu for gpu in cards.gpus if gpu.minor == minor and not gpu.parent), None)
    if gpu is None:
        raise BadRecord(f"{key} names /dev/nvidia{minor}, which node {cards.node} does not have")
    return gpu


def _block_starts(gpus: Sequence[Gpu]) -> list[str]:
    """The card in which each block begins. As in the original, the memory of the whole node is divided, not that of
    each card: now and then kubelet counts an extra block, which is never sold."""
    ends = list(accumulate(gpu.mib for gpu in gpus))
    blocks = ends[-1] // BLOCK_MIB if ends else 0
    return [gpus[bisect_right(ends, number * BLOCK_MIB)].uuid for number in range(blocks)]
