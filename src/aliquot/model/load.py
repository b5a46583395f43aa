"""How busy a node's cards and pods are: an annotation of the node's Lease, which the agent renews with it (v1 JSON)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from aliquot.model.bounds import LARGEST_RECORD, LONGEST_NAME, MAX_CARDS, MAX_MEASURED_PODS
from aliquot.model.records import VERSION, decode

LOAD = "aliquot.io/load"
FRESH_SECONDS = 60.0
"""A sample that is older says nothing of the present."""
_LONGEST_SILENCE = 40
"""Seconds: two of an agent's longest periods."""
IDLE = 0.02
"""A card, or a pod on it, that is busy for less of the time is idle."""

_Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
_Cores = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**50)]
_Watts = Annotated[float, msgspec.Meta(ge=0, le=1e5)]


@dataclass(frozen=True, slots=True)
class CardLoad:
    """What a card measured. A card may not know all of it."""

    cores: float | None = None
    """The part of the time in which a program ran on it, from 0 to 1."""
    memory_bytes: int | None = None
    watts: float | None = None


@dataclass(frozen=True, slots=True)
class PodLoad:
    """What a pod's processes use on one card."""

    memory_bytes: int = 0
    cores: float | None = None
    """Its part of the card's cores, from 0 to 1."""
    estimated: bool = False
    """Whether `cores` is an estimate: under MPS the driver cannot tell pods apart."""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    at: float
    """When it was measured, in seconds since the epoch by the node's clock."""
    cards: Mapping[str, CardLoad] = field(default_factory=dict)
    """By UUID."""
    pods: Mapping[str, Mapping[str, PodLoad]] = field(default_factory=dict)
    """By UID of the pod, then by UUID of the card."""


def longest_silence(duration: int | None) -> int:
    """The seconds after which an agent that has not renewed its Lease, of such a duration, is silent. A Lease without a
    duration, or with a longer one, expires after two of an agent's longest periods."""
    return min(duration or _LONGEST_SILENCE, _LONGEST_SILENCE)


class _Card(msgspec.Struct, frozen=True, array_like=True):
    cores: _Cores | None = None
    memory: _Bytes | None = None
    watts: _Watts | None = None


class _Pod(msgspec.Struct, frozen=True, array_like=True):
    memory: _Bytes = 0
    cores: _Cores | None = None
    estimated: bool = False


class _Load(msgspec.Struct, frozen=True):
    v: int
    at: Annotated[float, msgspec.Meta(ge=0, le=1e11)]
    cards: Annotated[dict[_Name, _Card], msgspec.Meta(max_length=MAX_CARDS)] = {}
    pods: Annotated[
        dict[_Name, Annotated[dict[_Name, _Pod], msgspec.Meta(max_length=MAX_CARDS)]],
        msgspec.Meta(max_length=MAX_MEASURED_PODS),
    ] = {}


def write_load(load: NodeLoad) -> str:
    """Leaves out the pods beyond the bounds, those with the least memory first."""
    pods = sorted(load.pods.items(), key=lambda item: -sum(use.memory_bytes for use in item[1].values()))
    kept = len(pods[:MAX_MEASURED_PODS])
    while True:
        text = _text(load, dict(pods[:kept]))
        if len(text) <= LARGEST_RECORD or not kept:
            return text
        kept //= 2


def _text(load: NodeLoad, pods: Mapping[str, Mapping[str, PodLoad]]) -> str:
    record = _Load(
        VERSION,
        round(load.at, 3),
        {
            uuid: _Card(_rounded(card.cores), card.memory_bytes, _rounded(card.watts))
            for uuid, card in load.cards.items()
        },
        {
            uid: {uuid: _Pod(use.memory_bytes, _rounded(use.cores), use.estimated) for uuid, use in by_card.items()}
            for uid, by_card in pods.items()
        },
    )
    return msgspec.json.encode(record).decode()


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def read_load(text: str) -> NodeLoad:
    """Raises BadRecord."""
    record = decode(LOAD, text, _Load, LARGEST_RECORD)
    return NodeLoad(
        record.at,
        {uuid: CardLoad(card.cores, card.memory, card.watts) for uuid, card in record.cards.items()},
        {
            uid: {uuid: PodLoad(use.memory, use.cores, use.estimated) for uuid, use in by_card.items()}
            for uid, by_card in record.pods.items()
        },
    )
