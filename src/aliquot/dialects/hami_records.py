"""HAMi's records: the cards of a node, and the cards of a pod."""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, TypeAlias, TypeVar

import msgspec

from aliquot.dialects.protocol import card_called, placed_on
from aliquot.errors import BadRecord
from aliquot.model import Gpu, Link, Mode, NodeGpus, Placement, Pod, Request
from aliquot.model.bounds import LARGEST_INVENTORY, LARGEST_RECORD, LONGEST_NAME, MAX_CARDS, MAX_MIB, require_size

REGISTER = "hami.io/node-nvidia-register"
SCORES = "hami.io/node-nvidia-score"
CORDON = "hami.io/device-cordon"
"""Annotations of nodes: the cards, how well they reach each other, and the cards that take no new pods."""

NODE = "hami.io/vgpu-node"
TIME = "hami.io/vgpu-time"
PHASE = "hami.io/bind-phase"
BIND_TIME = "hami.io/bind-time"
"""Annotations of pods: the node, when it was chosen, and how far the hand-over is. The first is also a label."""

TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
ALLOCATED = "hami.io/vgpu-devices-allocated"
"""Annotations of pods: the cards of each container as `uuid,NVIDIA,mib,cores:`, then `;`. The first annotation is
emptied as the cards are handed over."""

_FIELDS = ("id", "count", "devmem", "devcore", "type", "numa", "health", "index", "mode")
_SHORT_FIELDS = 7
"""The oldest format ends with the health."""
_TYPE = "NVIDIA"
_LONGEST_LABEL = 63

_Size = Annotated[int, msgspec.Meta(ge=1, le=MAX_MIB)]
_Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
_Score = Annotated[int, msgspec.Meta(ge=0, le=2**31)]


class _Card(msgspec.Struct, frozen=True):
    """HAMi omits fields that are 0, empty or false."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]
    devmem: _Size
    type: _Name = ""
    numa: Annotated[int, msgspec.Meta(ge=-(2**16), le=2**16)] = 0
    health: bool = False
    index: Annotated[int, msgspec.Meta(ge=0, le=MAX_CARDS)] = 0
    mode: str = "hami-core"


class _Scores(msgspec.Struct, frozen=True):
    uuid: _Name
    score: Annotated[dict[_Name, _Score], msgspec.Meta(max_length=MAX_CARDS)] = {}


_Record = TypeVar("_Record", list[_Card], list[_Scores])

# -- nodes


def read_register(register: str, scores: str, cordoned: Collection[str]) -> tuple[Gpu, ...]:
    """The cards by ascending index. A card that HAMi cuts into MIG instances is cordoned. Raises BadRecord."""
    require_size(REGISTER, register, LARGEST_INVENTORY, BadRecord)
    require_size(SCORES, scores, LARGEST_INVENTORY, BadRecord)
    found = _from_json(REGISTER, register, list[_Card]) if register.lstrip().startswith("[") else _from_text(register)
    if len({card.id for card in found}) < len(found) or len(found) > MAX_CARDS:
        raise BadRecord(f"{REGISTER} names a card twice, or more than {MAX_CARDS} cards")
    links = _links(_from_json(SCORES, scores, list[_Scores])) if scores else {}
    # older versions do not number the cards: then their position counts
    is_numbered = len({card.index for card in found}) == len(found)
    numbered = enumerate(found)
    gpus = [_gpu(card, card.index if is_numbered else place, links, cordoned) for place, card in numbered]
    return tuple(sorted(gpus, key=lambda gpu: gpu.index))


def _gpu(card: _Card, index: int, links: dict[str, tuple[Link, ...]], cordoned: Collection[str]) -> Gpu:
    return Gpu(
        uuid=card.id,
        index=index,
        minor=index,
        # HAMi puts its vendor's name in front of models that do not begin with it
        model=card.type.removeprefix("NVIDIA-") or "unknown",
        mib=card.devmem,
        numa=card.numa if card.numa >= 0 else None,
        healthy=card.health,
        cordoned=card.id in cordoned or card.mode == "mig",
        mode=Mode.MPS if card.mode == "mps" else Mode.TIME_SLICED,
        links=links.get(card.id, ()),
    )


def _links(scores: Sequence[_Scores]) -> dict[str, tuple[Link, ...]]:
    return {
        card.uuid: tuple(Link(uuid, score) for uuid, score in sorted(card.score.items()) if uuid != card.uuid)
        for card in scores
    }


def _from_text(text: str) -> list[_Card]:
    """`uuid,count,devmem,devcore,type,numa,health[,index,mode]:` for each card."""
    return [_card_from(entry) for entry in text.split(":") if entry.strip()]


def _card_from(entry: str) -> _Card:
    values = entry.strip().split(",")
    if len(values) not in (_SHORT_FIELDS, len(_FIELDS)):
        raise BadRecord(f"{REGISTER}: {entry[:80]!r} has {len(values)} fields, not 7 or 9")
    fields = dict(zip(_FIELDS, values, strict=False))
    try:
        return msgspec.convert(fields, _Card, strict=False)
    except msgspec.ValidationError as error:
        raise BadRecord(f"{REGISTER}: {entry[:80]!r}: {error}") from error


def _from_json(key: str, text: str, kind: type[_Record]) -> _Record:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise BadRecord(f"{key} cannot be read: {error}") from error


# -- pods


Sizes: TypeAlias = Mapping[str, Sequence[tuple[Gpu, int]]]
"""How many MiB each container may use of each of its cards."""


def write_placed(pod: Pod, request: Request, placement: Placement, sizes: Sizes, now_ns: int) -> Mapping[str, str]:
    """The annotations of a pod that was placed and has not been handed its cards."""
    devices, seconds = write_devices(pod, request, sizes), str(now_ns // 10**9)
    return {
        NODE: placement.node,
        TIME: seconds,
        TO_ALLOCATE: devices,
        ALLOCATED: devices,
        PHASE: "allocating",
        BIND_TIME: seconds,
    }


def write_label(placement: Placement) -> Mapping[str, str]:
    """A node name may be longer than a label value allows. Then the API server would refuse the whole write."""
    return {NODE: placement.node} if len(placement.node) <= _LONGEST_LABEL else {}


def write_handed_over(pod: Pod, request: Request) -> Mapping[str, str]:
    """What changes when the pod has its cards."""
    return {PHASE: "success", TO_ALLOCATE: write_served(pod, request)}


def is_handed_over(pod: Pod) -> bool:
    return pod.metadata.annotations.get(PHASE) == "success"


def write_devices(pod: Pod, request: Request, sizes: Sizes) -> str:
    entries = {
        asked.name: "".join(f"{gpu.uuid},{_TYPE},{mib},{asked.part.cores}:" for gpu, mib in sizes[asked.name])
        for asked in request.containers
    }
    return "".join(f"{entries.get(container.name, '')};" for container, _ in pod.containers())


def write_served(pod: Pod, request: Request) -> str:
    """What HAMi leaves of TO_ALLOCATE when all containers have their cards: an empty place for each container, and
    another for each container that was served, since HAMi also reads the text after the last `;` as a place."""
    return ";" * (len(list(pod.containers())) + len(request.containers))


def read_devices(pod: Pod, request: Request, cards: NodeGpus) -> Placement | None:
    """Every container on its cards; None for a pod without such a record. Sizes follow from the request. Raises
    BadRecord."""
    key = next((key for key in (ALLOCATED, TO_ALLOCATE) if key in pod.metadata.annotations), None)
    if key is None:
        return None
    require_size(key, pod.metadata.annotations[key], LARGEST_RECORD, BadRecord)
    entries = pod.metadata.annotations[key].removesuffix(";").split(";")
    names = [container.name for container, _ in pod.containers()]
    if len(entries) > len(names):
        raise BadRecord(f"{key} has {len(entries)} entries, but the pod has {len(names)} containers")
    if len(entries) <= len(pod.spec.containers):  # before version 2.10 there was no place for init containers
        names = [container.name for container in pod.spec.containers]
    entry_of = dict(zip(names, entries, strict=False))
    found = {}
    for container in request.containers:
        gpus = _cards_in(key, entry_of.get(container.name, ""), cards)
        if len(gpus) != container.part.cards:
            wants = f"container {container.name}, which asks for {container.part.cards}"
            raise BadRecord(f"{key} names {len(gpus)} cards for {wants}")
        found[container.name] = gpus
    return placed_on(request, found, cards)


def _cards_in(key: str, entry: str, cards: NodeGpus) -> list[Gpu]:
    """`uuid[...]` is an instance that an older HAMi made of the card."""
    devices = [device.split(",") for device in entry.split(":") if device]
    if any(len(device) < 4 for device in devices):
        raise BadRecord(f"{key}: {entry[:80]!r} is not a list of uuid,type,memory,cores")
    return [card_called(key, device[0].partition("[")[0], cards) for device in devices]
