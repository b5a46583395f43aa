"""The hand-over record: what a pod holds on this node. Its CDI specs carry it; only this node's agent writes there.

Without CDI, the answer to each Allocate carries the parts of its container instead: kubelet does not say there for
which pod it asks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

import msgspec

from aliquot.dialects import Holding
from aliquot.errors import BadRecord
from aliquot.model import Charge, NodeGpus, Placement, Slice

_VERSION = 1
_Amount = Annotated[int, msgspec.Meta(ge=0)]
"""Never negative: a negative amount would create room."""


@dataclass(frozen=True)
class HandOverRecord:
    """What a pod holds. `pod` is its `namespace/name`."""

    uid: str
    pod: str
    holding: Holding

    def on(self, cards: NodeGpus) -> "HandOverRecord":
        """The same record with the current index and minor of each card: a reboot may change them."""

        def renumbered(part: Slice) -> Slice:
            gpu = cards.by_uuid.get(part.uuid)
            return replace(part, index=gpu.index, minor=gpu.minor) if gpu else part

        placement = self.holding.placement
        containers = {name: tuple(map(renumbered, parts)) for name, parts in placement.containers.items()}
        return replace(self, holding=replace(self.holding, placement=replace(placement, containers=containers)))


class _Part(msgspec.Struct, frozen=True, omit_defaults=True):
    uuid: str
    cores: _Amount = 0
    mib: _Amount = 0
    slots: _Amount = 0
    shares: _Amount = 0


class _Parts(msgspec.Struct, frozen=True):
    v: int
    dialect: str
    parts: list[_Part]


class _Record(msgspec.Struct, frozen=True):
    v: int
    uid: str
    pod: str
    node: str
    dialect: str
    containers: dict[str, list[_Part]]
    charges: list[_Part]


def write(handed_over: HandOverRecord) -> str:
    placement = handed_over.holding.placement
    containers = {name: _written(parts) for name, parts in placement.containers.items()}
    charged = [
        _Part(uuid, charge.cores, charge.mib, charge.slots, charge.shares)
        for uuid, charge in handed_over.holding.charges.items()
    ]
    record = _Record(_VERSION, handed_over.uid, handed_over.pod, placement.node, placement.dialect, containers, charged)
    return msgspec.json.encode(record).decode()


def read(text: str) -> HandOverRecord:
    """Read a record. It has no index or minor of cards: see `HandOverRecord.on`. Raises BadRecord."""
    record = _decoded(text, _Record)
    containers = {name: _read(parts) for name, parts in record.containers.items()}
    charges = {part.uuid: Charge(part.cores, part.mib, part.slots, part.shares) for part in record.charges}
    return HandOverRecord(record.uid, record.pod, Holding(Placement(record.node, record.dialect, containers), charges))


def write_parts(dialect: str, parts: Iterable[Slice]) -> str:
    """What one container has got."""
    return msgspec.json.encode(_Parts(_VERSION, dialect, _written(parts))).decode()


def read_parts(text: str) -> tuple[str, tuple[Slice, ...]]:
    """The dialect and the parts, without index or minor of their cards. Raises BadRecord."""
    record = _decoded(text, _Parts)
    return record.dialect, _read(record.parts)


def _written(parts: Iterable[Slice]) -> list[_Part]:
    return [_Part(part.uuid, part.cores, part.mib, part.slots) for part in parts]


def _read(parts: Iterable[_Part]) -> tuple[Slice, ...]:
    return tuple(Slice(part.uuid, -1, -1, part.cores, part.mib, part.slots) for part in parts)


_Versioned = TypeVar("_Versioned", _Record, _Parts)


def _decoded(text: str, kind: type[_Versioned]) -> _Versioned:
    try:
        record = msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise BadRecord(f"the hand-over record cannot be read: {error}") from error
    if record.v != _VERSION:
        raise BadRecord(f"the hand-over record has version {record.v}; this Aliquot reads version {_VERSION}")
    return record
