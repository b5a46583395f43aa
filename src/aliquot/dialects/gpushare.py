"""gpushare: parts of cards by memory, `aliyun.com/gpu-mem`, and whole cards, `aliyun.com/gpu-count`.

Several cards per pod are ACK's newer form: a label says how many, and a JSON annotation says how much each container
has of each card.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from math import ceil
from typing import Any

from aliquot.dialects.gpushare_records import (
    ALLOCATION,
    ALLOCATION_ASSIGNED,
    SEVERAL_CARDS,
    cards_given,
    deal,
    indexes,
    read_allocation,
    units_held,
    units_on,
    write_allocation,
)
from aliquot.dialects.protocol import (
    Dialect,
    Resource,
    advice_for_bytes,
    capacity_of,
    card_at,
    card_numbers,
    equal_cards,
    limit,
    places,
    plain_number,
    sample,
)
from aliquot.errors import BadDemand, BadRecord
from aliquot.model import (
    Container,
    ContainerRequest,
    Gpu,
    Life,
    Memory,
    Node,
    NodeGpus,
    Part,
    Placement,
    Pod,
    Reason,
    Request,
    Slice,
    Unit,
    cut,
    made_up_uuid,
    peak,
)
from aliquot.model.bounds import MAX_CARDS, MAX_MIB, MAX_UNITS
from aliquot.model.records import PLACEMENT, read_placement

IDX = "ALIYUN_COM_GPU_MEM_IDX"
DEV = "ALIYUN_COM_GPU_MEM_DEV"
POD = "ALIYUN_COM_GPU_MEM_POD"
CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"
ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"

_GIB_UNITS_AT_MAX = 100
"""A node without an inventory counts in GiB if a card has at most this many units, else in MiB."""

_NO_ROOM = "Insufficient GPU Memory in one device"
_WORDS = {
    Reason.NO_CARD_FITS: _NO_ROOM,
    Reason.TOO_LARGE: f"{_NO_ROOM}: {Reason.TOO_LARGE.value}",
    Reason.NOT_SELLABLE: f"{_NO_ROOM}: {Reason.NOT_SELLABLE.value}",
    Reason.NO_GPUS: "The node is not for GPU share, need skip",
    Reason.UNKNOWN_NODE: "node not found",
}


_ORIGINAL_WORDS = {
    Reason.TOO_LARGE: _NO_ROOM,
    Reason.NOT_SELLABLE: _NO_ROOM,
    Reason.NO_GPUS: "The node {node} is not for GPU share, need skip",
    Reason.NOT_SERVED: "The node {node} is not for GPU share, need skip",
    Reason.UNKNOWN_NODE: 'node "{node}" not found',
}

_Sharing = Sequence[tuple[Container, Life, int]]
"""The containers of a pod that ask for memory, with their units of it."""


class GpuShare(Dialect):
    name = "gpushare"
    standard_prefix = "aliyun.com"
    node_labels = {"gpushare": "true"}
    node_policy = "tightest"
    gpu_policy = "tightest"
    original_words = _ORIGINAL_WORDS

    @cached_property
    def gpu_mem(self) -> str:
        return f"{self.prefix}/gpu-mem"

    @cached_property
    def gpu_count(self) -> str:
        return f"{self.prefix}/gpu-count"

    @property
    def resources(self) -> Sequence[Resource]:
        return (
            Resource(self.gpu_mem, "a node unit of memory: GiB, unless the node says MiB", "aliyungpushare.sock"),
            Resource(self.gpu_count, "a card", "aliyungpushare-count.sock"),
        )

    @property
    def placement_keys(self) -> Sequence[str]:
        return (IDX, DEV, POD, ASSIGNED, ASSUME_TIME, f"{SEVERAL_CARDS}*")

    @property
    def size_keys(self) -> Sequence[str]:
        return (self.gpu_count,)

    @property
    def card_resources(self) -> Sequence[str]:
        return (self.gpu_mem, self.gpu_count)

    def demand(self, pod: Pod) -> Request:
        asking = [
            (container, life, limit(container, self.gpu_mem), limit(container, self.gpu_count))
            for container, life in pod.containers()
        ]
        if any(units for *_, units, _ in asking):
            cards, sharing = self._cards_for_parts(pod, asking), [each for each in asking if each[2]]
            parts = (
                _share(container.name, life, self._divided(pod, container, units, cards), cards)
                for container, life, units, _ in sharing
            )
            largest, *_ = max(sharing, key=lambda each: each[2])
            request = self._refuse_too_much(self.request(pod, parts, together=True), largest)
            if cards == 1:
                return request
            # the original's plugin gives one card, and reads one index
            on_one_card = tuple(_share(container.name, life, units) for container, life, units, _ in sharing)
            return replace(request, elsewhere=on_one_card)
        self._check_cards(pod, {count for *_, count in asking if count})
        return self._whole(pod)

    def held(self, pod: Pod) -> Request:
        """The memory and whole cards of the limits, which nobody can rewrite. The limits also say how many cards the
        memory is on. If a label says it, the record decides: a label for more cards with less memory each must not free
        what the pod has."""
        sharing = self._sharing(pod)
        if not sharing:
            return self._whole(pod)
        by_limits, is_labelled = self._cards_by_limits(sharing), self.gpu_count in pod.metadata.labels
        if not by_limits and not is_labelled:
            return self._shared(pod, sharing, 1)
        if self._is_on_the_one_card_of_the_original(pod):
            return self._shared(pod, sharing, 1)
        return self._shared(pod, sharing, by_limits or _cards_recorded(pod))

    def demand_can_change(self, pod: Pod) -> bool:
        if self.gpu_count not in pod.metadata.labels:
            return False
        sharing = self._sharing(pod)
        return bool(sharing) and not self._cards_by_limits(sharing)

    def by_spec(self, pod: Pod) -> Request:
        """All memory may be on one card, whatever a label says."""
        sharing = self._sharing(pod)
        return self._shared(pod, sharing, 1) if sharing else self._whole(pod)

    def capacity(self, node: Node) -> NodeGpus | None:
        memory, count = capacity_of(node, self.gpu_mem), capacity_of(node, self.gpu_count)
        units, rest = divmod(memory, count) if count else (0, memory)
        unit_mib = 1024 if units <= _GIB_UNITS_AT_MAX else 1
        if not units and 0 < rest * unit_mib <= MAX_MIB:  # for shared cards, but none holds a unit
            return NodeGpus(node.metadata.name, (), unit_mib, frozenset({self.name}), rest_mib=rest * unit_mib)
        return equal_cards(node, count, units * unit_mib, unit_mib, rest_mib=rest * unit_mib)

    def read_back(self, pod: Pod, cards: NodeGpus) -> Placement | None:
        annotations = pod.metadata.annotations
        if by_place := read_allocation(annotations.get(ALLOCATION, "")):
            key, numbers = ALLOCATION, tuple(sorted({number for own in by_place.values() for number in own}))
        elif IDX in annotations:
            key, numbers = IDX, card_numbers(IDX, annotations[IDX])
        else:
            return None
        request = self.held(pod)
        dealt, place, slices = deal(request, numbers), places(pod) if by_place else {}, {}
        for asked in request.containers:
            own = by_place.get(place[asked.name]) if by_place and asked.life is Life.MAIN else None
            units = own or dict.fromkeys(dealt[asked.name], 0)
            gpus = {number: card_at(key, number, cards) for number in units}
            slices[asked.name] = tuple(_given(asked.part, gpus[number], units[number], cards) for number in units)
        return Placement(cards.node, self.name, slices)

    def repeats(self, pod: Pod, record: Placement) -> bool:
        """If the record has one card, and the index is the number that the card had then."""
        annotations = pod.metadata.annotations
        if ALLOCATION in annotations:
            return False
        cards = {(part.uuid, part.index) for part in record.slices()}
        return [str(index) for _, index in cards] == [annotations.get(IDX)]

    def unrecorded(self, pod: Pod, cards: NodeGpus) -> Sequence[Gpu]:
        """The original's plugin gives nothing for a number of cards. For memory it gives the node's card only if there
        is just one."""
        is_written = bool(self.written_on(pod))
        if is_written or not cards.are_made_up:
            return cards.gpus
        return cards.gpus if len(cards.gpus) == 1 and self._sharing(pod) else ()

    def annotations(
        self, pod: Pod, request: Request, placement: Placement, cards: NodeGpus, now_ns: int
    ) -> Mapping[str, str]:
        given = cards_given(request, placement, cards)
        gpus = sorted({gpu.index: gpu for own in given.values() for gpu in own}.values(), key=lambda gpu: gpu.index)
        written = {
            IDX: indexes(gpus),
            DEV: str(max(map(cards.units, gpus))),
            POD: str(units_held(request, given, cards)),
            ASSIGNED: "false",
            ASSUME_TIME: str(now_ns),
        }
        return written if len(gpus) == 1 else written | {ALLOCATION: write_allocation(pod, request, given, cards)}

    def is_marked(self, pod: Pod) -> bool:
        return "true" in (pod.metadata.annotations.get(ASSIGNED), pod.metadata.annotations.get(ALLOCATION_ASSIGNED))

    def hand_over_marks(self, pod: Pod, now_ns: int) -> Mapping[str, str]:
        return {ASSIGNED: "true", ASSUME_TIME: str(now_ns)}

    def words(self, reason: Reason) -> str:
        return _WORDS.get(reason, reason.value)

    def device_ids(self, resource: str, cards: NodeGpus) -> Sequence[tuple[str, str]]:
        if resource == self.gpu_count:
            return [(gpu.uuid, gpu.uuid) for gpu in cards.offered]
        return [(f"{gpu.uuid}-_-{unit}", gpu.uuid) for gpu in cards.offered for unit in range(cards.units(gpu))]

    def environment(
        self, pod: Pod, request: Request, container: str, placement: Placement, cards: NodeGpus
    ) -> Mapping[str, str]:
        """CONTAINER and DEV are about one card, so that their ratio is the share to keep to on each of several
        cards."""
        given = cards_given(request, placement, cards)
        (part,) = (asked.part for asked in request.containers if asked.name == container)
        gpus = given[container]
        return {
            "NVIDIA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus),
            IDX: indexes(gpus),
            POD: str(units_held(request, given, cards)),
            CONTAINER: str(max(units_on(part, gpu, cards) for gpu in gpus)),
            DEV: str(max(map(cards.units, gpus))),
        }

    def sample_pod(self) -> Mapping[str, Any]:
        name = "binpack-1"
        return sample(name, {self.gpu_mem: "3"}, container=name, labels={"app": name})

    # -- how many cards

    def _cards_for_parts(self, pod: Pod, asking: Sequence[tuple[Container, Life, int, int]]) -> int:
        """How many cards the containers of a pod share that asks for memory."""
        for container, _, units, count in asking:
            if count and not units:
                raise BadDemand(
                    f"container {container.name}, limits: {self.gpu_count} without {self.gpu_mem} is for whole cards, "
                    f"but another container of the pod shares cards; set {self.gpu_mem} for both or for neither"
                )
        return self._check_cards(pod, {count for *_, count in asking if count}, together=True)

    def _check_cards(self, pod: Pod, counts: set[int], *, together: bool = False) -> int:
        """The number of cards that the label and the containers agree on, 1 if neither names any."""
        label = pod.metadata.labels.get(self.gpu_count)
        labelled = None if label is None else plain_number(label)
        if label is not None and not labelled:
            raise BadDemand(f"label {self.gpu_count}: {label[:64]!r} is not a number of cards, such as 2")
        named = counts | {labelled} if labelled else counts
        if len(named) > 1 and (together or label is not None):
            raise BadDemand(
                f"{self.gpu_count}: the pod names different numbers of cards ({', '.join(map(str, sorted(named)))}); "
                "its containers share the same cards, so use one number"
            )
        if max(named, default=1) > MAX_CARDS:
            raise BadDemand(f"{self.gpu_count}: no node has {max(named)} cards")
        return max(named, default=1)

    def _divided(self, pod: Pod, container: Container, units: int, cards: int) -> int:
        """Units of each card: rounded up, unless the pod uses ACK's label, which refuses amounts that do not divide."""
        each, over = divmod(units, cards)
        if over and self.gpu_count not in pod.metadata.labels:
            return each + 1
        if over:
            ways = " or ".join(str(n * cards) for n in (each, each + 1) if n)
            raise BadDemand(
                f"container {container.name}, limits, {self.gpu_mem}: {units} units cannot be split into "
                f"{cards} equal parts, and {self.gpu_count} asks for {cards} cards; ask for {ways} units"
            )
        return each

    def _refuse_too_much(self, request: Request, largest: Container) -> Request:
        units = peak((asked.life, asked.part.cards * asked.part.memory.amount) for asked in request.containers)
        if units > MAX_UNITS:
            raise BadDemand(
                f"{self.gpu_mem}: {units} is more than any GPU has; it counts the node's units "
                f"(GiB unless the node says MiB): {advice_for_bytes(largest, self.gpu_mem, 2**30)}"
            )
        return request

    # -- pods that the original has placed

    def _is_on_the_one_card_of_the_original(self, pod: Pod) -> bool:
        """Of a pod that asks for memory. The original does not know a number of cards: all memory is on the card of the
        pod's index. The same holds for a pod that we have placed for the original's plugin."""
        annotations = pod.metadata.annotations
        if PLACEMENT in annotations:
            return _is_for_another_agent(annotations[PLACEMENT])
        if read_allocation(annotations.get(ALLOCATION, "")):
            return False
        return "," not in annotations.get(IDX, ",")

    # -- what the limits say

    def _sharing(self, pod: Pod) -> _Sharing:
        asking = [(container, life, limit(container, self.gpu_mem)) for container, life in pod.containers()]
        return [each for each in asking if each[2]]

    def _cards_by_limits(self, sharing: _Sharing) -> int:
        """The number of cards that containers name next to their memory; 0 if none does."""
        return min(max([limit(container, self.gpu_count) for container, _, _ in sharing]), MAX_CARDS)

    def _shared(self, pod: Pod, sharing: _Sharing, cards: int) -> Request:
        parts = [
            _share(container.name, life, ceil(min(units, MAX_UNITS) / cards), cards)
            for container, life, units in sharing
        ]
        return self.request(pod, parts, together=True)

    def _whole(self, pod: Pod) -> Request:
        parts = (
            ContainerRequest(container.name, Part(count, whole=True), life)
            for container, life in pod.containers()
            if (count := limit(container, self.gpu_count))
        )
        return self.request(pod, parts)


def _is_for_another_agent(record: str) -> bool:
    """Whether our record names one card, on a node where our agent did not hand out the cards at that time."""
    try:
        placement = read_placement(record)
    except BadRecord:
        return False
    cards = {(part.uuid, part.index) for part in placement.slices()}
    return len(cards) == 1 and all(uuid == made_up_uuid(placement.node, index) for uuid, index in cards)


def _cards_recorded(pod: Pod) -> int:
    """How many cards a pod has, according to our record, else to the originals'; 1 if none can be read."""
    annotations = pod.metadata.annotations
    try:
        if PLACEMENT in annotations:
            return len({part.uuid for part in read_placement(annotations[PLACEMENT]).slices()}) or 1
        if by_place := read_allocation(annotations.get(ALLOCATION, "")):
            return len({number for own in by_place.values() for number in own})
        return len(card_numbers(IDX, annotations.get(IDX, "")))
    except BadRecord:
        return 1


def _given(part: Part, gpu: Gpu, units: int, cards: NodeGpus) -> Slice:
    """What a container has of a card according to the record, but at least its part."""
    asked = cut(part, gpu, cards.unit_mib)
    recorded = min(units * cards.unit_mib, gpu.mib)
    return asked if recorded <= asked.mib else replace(asked, mib=recorded)


@lru_cache(4096)
def _share(container: str, life: Life, units: int, cards: int = 1) -> ContainerRequest:
    """The same object for the same part: most containers of a cluster ask for the same as others."""
    return ContainerRequest(container, Part(cards, memory=Memory(units, Unit.NODE)), life)
