"""gpushare's records: how many units each container has of each of a pod's cards."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from aliquot.dialects.protocol import places
from aliquot.errors import BadRecord
from aliquot.model import Gpu, Life, NodeGpus, Part, Placement, Pod, Request, peak
from aliquot.model.bounds import LARGEST_RECORD, MAX_UNITS

SEVERAL_CARDS = "scheduler.framework.gpushare."
ALLOCATION = f"{SEVERAL_CARDS}allocation"
"""`{"<container index>":{"<gpu index>":<units>}}`, on pods that have several cards."""
ALLOCATION_ASSIGNED = f"{SEVERAL_CARDS}assigned"
"""ACK's plugin writes it as the original's plugin writes ALIYUN_COM_GPU_MEM_ASSIGNED. We only read it."""

_Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_UNITS)]
_DECODER = msgspec.json.Decoder(dict[_Number, dict[_Number, _Number]])

# -- records of several cards


def read_allocation(text: str) -> Mapping[int, Mapping[int, int]]:
    """The units of each main container, by its place, on each of its cards. Empty if the text is not such a record, or
    is too large for one."""
    if not text or len(text) > LARGEST_RECORD:
        return {}
    try:
        record = _DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return {}
    cards = {place: {index: own[index] for index in sorted(own) if own[index]} for place, own in record.items()}
    return {place: own for place, own in cards.items() if own}


def deal(request: Request, numbers: Sequence[int]) -> Mapping[str, Sequence[int]]:
    """Which container has which of a pod's cards if the record does not say. Containers that share have all of them,
    the others take their number one after another. An init container gives back what it had."""
    if request.together:
        return {asked.name: numbers for asked in request.containers}
    dealt, taken = {}, 0
    for asked in request.containers:
        dealt[asked.name] = numbers[taken : taken + asked.part.cards]
        taken += 0 if asked.life is Life.INIT else asked.part.cards
    return dealt


def write_allocation(pod: Pod, request: Request, given: Mapping[str, Sequence[Gpu]], cards: NodeGpus) -> str:
    place = places(pod)
    record = {
        str(place[asked.name]): {str(gpu.index): units_on(asked.part, gpu, cards) for gpu in given[asked.name]}
        for asked in request.containers
        if asked.life is Life.MAIN
    }
    return msgspec.json.encode(record).decode()


# -- what was given


def cards_given(request: Request, placement: Placement, cards: NodeGpus) -> Mapping[str, Sequence[Gpu]]:
    """The cards of every container by ascending index. Raises BadRecord if the placement does not match the request."""
    given = {}
    for asked in request.containers:
        uuids = {part.uuid for part in placement.containers.get(asked.name, ())}
        if len(uuids) != asked.part.cards or not uuids <= cards.by_uuid.keys():
            raise BadRecord(
                f"the placement must name {asked.part.cards} of the cards of node {cards.node} for container "
                f"{asked.name}, and names {', '.join(sorted(uuids)) or 'none'}"
            )
        given[asked.name] = sorted((cards.by_uuid[uuid] for uuid in uuids), key=lambda gpu: gpu.index)
    if request.together and len({indexes(gpus) for gpus in given.values()}) > 1:
        raise BadRecord("the placement must name the same cards for all containers of the pod")
    return given


def units_on(part: Part, gpu: Gpu, cards: NodeGpus) -> int:
    """Node units that a container has of one of its cards."""
    return cards.units(gpu) if part.whole else part.memory.amount


def units_held(request: Request, given: Mapping[str, Sequence[Gpu]], cards: NodeGpus) -> int:
    """The peak of node units that the pod holds, over all its cards."""
    return peak(
        (asked.life, sum(units_on(asked.part, gpu, cards) for gpu in given[asked.name])) for asked in request.containers
    )


def indexes(gpus: Sequence[Gpu]) -> str:
    return ",".join(str(gpu.index) for gpu in gpus)
