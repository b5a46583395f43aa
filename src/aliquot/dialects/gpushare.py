"""gpushare: parts of cards by memory, `aliyun.com/gpu-mem`, and whole cards, `aliyun.com/gpu-count`.

Several cards per pod are ACK's newer form: a label says how many, and a JSON annotation says which container has how
much of which card.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from aliquot.dialects.protocol import (
    MOST_CARDS,
    Dialect,
    Resource,
    capacity_of,
    card_at,
    card_numbers,
    equal_cards,
    limit,
    places,
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
    Unit,
    cut,
    peak,
)
from aliquot.model.records import PLACEMENT

IDX = "ALIYUN_COM_GPU_MEM_IDX"
DEV = "ALIYUN_COM_GPU_MEM_DEV"
POD = "ALIYUN_COM_GPU_MEM_POD"
CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"
ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
_SEVERAL_CARDS = "scheduler.framework.gpushare."
ALLOCATION = f"{_SEVERAL_CARDS}allocation"
"""`{"<container index>":{"<gpu index>":<units>}}`, on pods that have several cards."""
ALLOCATION_ASSIGNED = f"{_SEVERAL_CARDS}assigned"
"""Written by ACK's plug-in as ASSIGNED is by the original's; we only read it."""

_MOST_UNITS = 10**9
_GIB_UNITS_AT_MOST = 100
"""A node without an inventory counts in GiB if a card has at most this many units, else in MiB."""

_NO_ROOM = "Insufficient GPU Memory in one device"
_WORDS = {
    Reason.NO_CARD_FITS: _NO_ROOM,
    Reason.TOO_LARGE: _NO_ROOM,
    Reason.NOT_SELLABLE: _NO_ROOM,
    Reason.NO_GPUS: "The node is not for GPU share, need skip",
    Reason.UNKNOWN_NODE: "node not found",
}

_Number = Annotated[int, msgspec.Meta(ge=0, le=_MOST_UNITS)]


class GpuShare(Dialect):
    name = "gpushare"
    standard_prefix = "aliyun.com"
    node_labels = {"gpushare": "true"}
    node_policy = "tightest"
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
            Resource(self.gpu_count, "a card", "aliyungpushare-count.sock"),
        )

    @property
    def placement_keys(self) -> Sequence[str]:
        return (IDX, DEV, POD, ASSIGNED, ASSUME_TIME, f"{_SEVERAL_CARDS}*")

    def demand(self, pod: Pod) -> Request:
        asking = [
            (container, life, limit(container, self.gpu_mem), limit(container, self.gpu_count))
            for container, life in pod.containers()
        ]
        if any(units for *_, units, _ in asking):
            cards = self._cards_for_parts(pod, asking)
            parts = {
                container.name: (life, Part(cards, memory=Memory(self._divided(container, units, cards), Unit.NODE)))
                for container, life, units, _ in asking
                if units
            }
        else:
            self._check_cards(pod, {count for *_, count in asking if count})
            parts = {container.name: (life, Part(count, whole=True)) for container, life, _, count in asking if count}
        if not parts:
            raise BadDemand(f"no container of the pod asks for more than 0 of {self.gpu_mem} or {self.gpu_count}")
        return self._refuse_too_much(self._request(pod, parts))

    def held(self, pod: Pod) -> Request:
        if self._is_on_the_one_card_of_the_original(pod):
            return self._all_on_one_card(pod)
        try:
            return self.demand(pod)
        except BadDemand:
            return self._all_on_one_card(pod)

    def demand_can_change(self, pod: Pod) -> bool:
        return self.gpu_count in pod.metadata.labels

    def capacity(self, node: Node) -> NodeGpus | None:
        memory, count = capacity_of(node, self.gpu_mem), capacity_of(node, self.gpu_count)
        units = memory // count if count else 0
        unit_mib = 1024 if units <= _GIB_UNITS_AT_MOST else 1
        return equal_cards(node, count, units * unit_mib, unit_mib)

    def read_back(self, pod: Pod, cards: NodeGpus) -> Placement | None:
        annotations = pod.metadata.annotations
        if by_place := _read_allocation(annotations.get(ALLOCATION, "")):
            key, numbers = ALLOCATION, tuple(sorted({number for own in by_place.values() for number in own}))
        elif IDX in annotations:
            key, numbers = IDX, card_numbers(IDX, annotations[IDX])
        else:
            return None
        request = self.held(pod)
        dealt, place, slices = _deal(request, numbers), places(pod), {}
        for container in request.containers:
            own = by_place.get(place[container.name]) if container.life is Life.MAIN else None
            gpus = [card_at(key, number, cards) for number in own or dealt[container.name]]
            slices[container.name] = tuple(cut(container.part, gpu, cards.unit_mib) for gpu in gpus)
        return Placement(cards.node, self.name, slices)

    def annotations(
        self, pod: Pod, request: Request, placement: Placement, cards: NodeGpus, now_ns: int
    ) -> Mapping[str, str]:
        given = _cards_given(request, placement, cards)
        gpus = sorted({gpu.index: gpu for own in given.values() for gpu in own}.values(), key=lambda gpu: gpu.index)
        written = {
            IDX: _indexes(gpus),
            DEV: str(max(map(cards.units, gpus))),
            POD: str(_units(request, given, cards)),
            ASSIGNED: "false",
            ASSUME_TIME: str(now_ns),
        }
        return written if len(gpus) == 1 else written | {ALLOCATION: _allocation(pod, request, given, cards)}

    def handed_over(self, pod: Pod) -> bool:
        return "true" in (pod.metadata.annotations.get(ASSIGNED), pod.metadata.annotations.get(ALLOCATION_ASSIGNED))

    def hand_over_marks(self, now_ns: int) -> Mapping[str, str]:
        return {ASSIGNED: "true", ASSUME_TIME: str(now_ns)}

    def words(self, reason: Reason) -> str:
        return _WORDS.get(reason, reason.value)

    def device_ids(self, resource: str, cards: NodeGpus) -> Sequence[tuple[str, str]]:
        offered = [gpu for gpu in cards.gpus if not gpu.parent and gpu.uuid not in cards.parents]
        if resource == self.gpu_count:
            return [(gpu.uuid, gpu.uuid) for gpu in offered]
        return [(f"{gpu.uuid}-_-{unit}", gpu.uuid) for gpu in offered for unit in range(cards.units(gpu))]

    def environment(
        self, pod: Pod, request: Request, container: str, placement: Placement, cards: NodeGpus
    ) -> Mapping[str, str]:
        """CONTAINER and DEV are of one card, so that their ratio is the share to keep to on each of several."""
        given = _cards_given(request, placement, cards)
        (part,) = (asked.part for asked in request.containers if asked.name == container)
        gpus = given[container]
        return {
            "NVIDIA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus),
            IDX: _indexes(gpus),
            POD: str(_units(request, given, cards)),
            CONTAINER: str(max(_units_on(part, gpu, cards) for gpu in gpus)),
            DEV: str(max(map(cards.units, gpus))),
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

    # -- how many cards

    def _cards_for_parts(self, pod: Pod, asking: Sequence[tuple[Container, Life, int, int]]) -> int:
        """How many cards all containers of a pod share that asks for memory."""
        for container, _, units, count in asking:
            if count and not units:
                raise BadDemand(
                    f"container {container.name}, limits: {self.gpu_count} without {self.gpu_mem} is for whole cards, "
                    f"but another container of the pod shares cards; name {self.gpu_mem} for both or for neither"
                )
        return self._check_cards(pod, {count for *_, count in asking if count}, together=True)

    def _check_cards(self, pod: Pod, counts: set[int], *, together: bool = False) -> int:
        """The number of cards that label and containers agree on, 1 if none is named."""
        label = pod.metadata.labels.get(self.gpu_count)
        if label is not None and not (label.isascii() and label.isdigit() and len(label) < 10 and int(label)):
            raise BadDemand(f"label {self.gpu_count}: {label[:64]!r} is not a number of cards, such as 2")
        named = counts if label is None else counts | {int(label)}
        if len(named) > 1 and (together or label is not None):
            raise BadDemand(
                f"{self.gpu_count}: the pod names different numbers of cards ({', '.join(map(str, sorted(named)))}); "
                "its containers share the same cards, so name one number"
            )
        if max(named, default=1) > MOST_CARDS:
            raise BadDemand(f"{self.gpu_count}: no node has {max(named)} cards")
        return max(named, default=1)

    def _divided(self, container: Container, units: int, cards: int) -> int:
        each, over = divmod(units, cards)
        if over:
            ways = " or ".join(str(n * cards) for n in (each, each + 1) if n)
            raise BadDemand(
                f"container {container.name}, limits, {self.gpu_mem}: {units} units are not {cards} equal parts, and "
                f"{self.gpu_count} asks for {cards} cards; ask for {ways} units"
            )
        return each

    def _request(self, pod: Pod, parts: Mapping[str, tuple[Life, Part]]) -> Request:
        containers = tuple(ContainerRequest(name, part, life) for name, (life, part) in parts.items())
        together = not any(container.part.whole for container in containers)
        priority = pod.spec.priority or 0
        return Request(pod.metadata.uid, pod.key, self.name, containers, together, priority)

    def _refuse_too_much(self, request: Request) -> Request:
        units = peak((asked.life, asked.part.cards * asked.part.memory.amount) for asked in request.containers)
        if units > _MOST_UNITS:
            raise BadDemand(
                f"{self.gpu_mem}: {units} is more than any GPU has; it counts the node's units "
                "(GiB unless the node says MiB): write 3, not 3Gi or 3G"
            )
        return request

    # -- pods that the original has placed

    def _is_on_the_one_card_of_the_original(self, pod: Pod) -> bool:
        """The original knows no number of cards: all memory that such a pod asks for is on the card of its index."""
        annotations = pod.metadata.annotations
        if PLACEMENT in annotations or _read_allocation(annotations.get(ALLOCATION, "")):
            return False
        asks_memory = any(self.gpu_mem in container.limits for container, _ in pod.containers())
        return asks_memory and "," not in annotations.get(IDX, ",")

    def _all_on_one_card(self, pod: Pod) -> Request:
        parts = {
            container.name: (life, Part(memory=Memory(units, Unit.NODE)))
            for container, life in pod.containers()
            if (units := limit(container, self.gpu_mem))
        }
        if not parts:
            raise BadDemand(f"no container of the pod asks for more than 0 of {self.gpu_mem}")
        return self._request(pod, parts)


# -- records of several cards


def _read_allocation(text: str) -> Mapping[int, Sequence[int]]:
    """The cards of each main container by its place; empty for a text that is no such record."""
    try:
        record = msgspec.json.decode(text, type=dict[_Number, dict[_Number, _Number]])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return {}
    cards = {place: tuple(sorted(index for index, units in own.items() if units)) for place, own in record.items()}
    return {place: own for place, own in cards.items() if own}


def _deal(request: Request, numbers: Sequence[int]) -> Mapping[str, Sequence[int]]:
    """Who has which of a pod's cards where the record does not say: those who share have all, the others their number
    one after another. An init container gives back what it had."""
    if request.together:
        return {asked.name: numbers for asked in request.containers}
    dealt, taken = {}, 0
    for asked in request.containers:
        dealt[asked.name] = numbers[taken : taken + asked.part.cards]
        taken += 0 if asked.life is Life.INIT else asked.part.cards
    return dealt


def _allocation(pod: Pod, request: Request, given: Mapping[str, Sequence[Gpu]], cards: NodeGpus) -> str:
    place = places(pod)
    record = {
        str(place[asked.name]): {str(gpu.index): _units_on(asked.part, gpu, cards) for gpu in given[asked.name]}
        for asked in request.containers
        if asked.life is Life.MAIN
    }
    return msgspec.json.encode(record).decode()


# -- what was given


def _cards_given(request: Request, placement: Placement, cards: NodeGpus) -> Mapping[str, Sequence[Gpu]]:
    """The cards of every container by ascending index. Raises BadRecord for a placement that is not what was asked."""
    given = {}
    for asked in request.containers:
        uuids = {part.uuid for part in placement.containers.get(asked.name, ())}
        if len(uuids) != asked.part.cards or not uuids <= cards.by_uuid.keys():
            raise BadRecord(
                f"the placement must name {asked.part.cards} of the cards of node {cards.node} for container "
                f"{asked.name}, and names {', '.join(sorted(uuids)) or 'none'}"
            )
        given[asked.name] = sorted((cards.by_uuid[uuid] for uuid in uuids), key=lambda gpu: gpu.index)
    if request.together and len({_indexes(gpus) for gpus in given.values()}) > 1:
        raise BadRecord("the placement must name the same cards for all containers of the pod")
    return given


def _units_on(part: Part, gpu: Gpu, cards: NodeGpus) -> int:
    """Node units that a container has of one of its cards."""
    return cards.units(gpu) if part.whole else part.memory.amount


def _units(request: Request, given: Mapping[str, Sequence[Gpu]], cards: NodeGpus) -> int:
    """Node units that the pod holds at most, of all its cards."""
    return peak(
        (asked.life, sum(_units_on(asked.part, gpu, cards) for gpu in given[asked.name]))
        for asked in request.containers
    )


def _indexes(gpus: Sequence[Gpu]) -> str:
    return ",".join(str(gpu.index) for gpu in gpus)
