"""Our own records on the wire: the placement on a pod and the inventory on a node (v1 JSON annotations)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Protocol, TypeVar

import msgspec

from aliquot.errors import BadRecord
from aliquot.model.bounds import (
    LARGEST_INVENTORY,
    LARGEST_RECORD,
    LONGEST_NAME,
    MAX_CARDS,
    MAX_CONTAINERS,
    MAX_MIB,
    require_size,
)
from aliquot.model.gpu import Gpu, Link, Mode, NodeGpus
from aliquot.model.placement import Placement, Slice

PLACEMENT = "aliquot.io/placement"
INVENTORY = "aliquot.io/inventory"
CARD_LABELS = "aliquot.io/card-labels"
"""The labels that an agent has written on its Node, with their values."""
OBSERVED = "aliquot.io/observed"
"""The cards that kubelet has given to a pod on an observed node, or that a pod kept whose node we took over."""
EPOCH = "aliquot.io/epoch"
"""The number of the leadership term in which a placement was written. The API server refuses any number but the current
one."""
NODE_LEASES = "aliquot-nodes"
"""The namespace of the agents' Leases. Each Lease has the name of its node."""
VERSION = 1

_Amount = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
"""Never negative, which would create room, and small enough for 64-bit arithmetic."""
_Mib = Annotated[int, msgspec.Meta(ge=0, le=MAX_MIB)]
_Unit = Annotated[int, msgspec.Meta(ge=1, le=2**20)]
_Numa = Annotated[int, msgspec.Meta(ge=0, le=2**16)]
_Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]


class _Slice(msgspec.Struct, frozen=True, omit_defaults=True):
    uuid: _Name
    index: _Amount
    minor: _Amount
    cores: _Amount
    mib: _Mib
    slots: _Amount = 0


class _Placement(msgspec.Struct, frozen=True):
    v: int
    node: _Name
    dialect: _Name
    containers: Annotated[
        dict[str, Annotated[list[_Slice], msgspec.Meta(max_length=MAX_CARDS)]],
        msgspec.Meta(max_length=MAX_CONTAINERS),
    ]


class _Gpu(msgspec.Struct, frozen=True, omit_defaults=True):
    uuid: _Name
    index: _Amount
    minor: _Amount
    model: _Name
    mib: _Mib
    numa: _Numa | None = None
    healthy: bool = True
    cordoned: bool = False
    slots: _Amount = 0
    mode: Mode = Mode.ANY
    parent: _Name = ""
    profile: _Name = ""
    brand: _Name = ""
    bus_id: _Name = ""
    links: Annotated[dict[_Name, _Amount], msgspec.Meta(max_length=MAX_CARDS)] = {}
    """How well each other card of the node is reached, by uuid."""


class _Inventory(msgspec.Struct, frozen=True, omit_defaults=True, rename={"unit_mib": "unitMiB"}):
    v: int
    unit_mib: _Unit
    gpus: Annotated[list[_Gpu], msgspec.Meta(max_length=MAX_CARDS)]
    driver: _Name = ""
    observed: bool = False


class _Observed(msgspec.Struct, frozen=True):
    """`uid` keeps the record from counting on a pod that was made from a copy."""

    v: int
    uid: _Name
    containers: Annotated[
        dict[str, Annotated[list[_Name], msgspec.Meta(max_length=MAX_CARDS)]],
        msgspec.Meta(max_length=MAX_CONTAINERS),
    ]


_PLAIN = tuple(name for name in _Gpu.__struct_fields__ if name != "links")
_plain_values: Callable[[_Gpu], tuple[Any, ...]] = attrgetter(*_PLAIN)
"""In the order of Gpu's own fields. Large clusters have 40,000 cards."""
assert (*_PLAIN, "links") == tuple(each.name for each in fields(Gpu)), (
    "a record has the fields of a card, in their order"
)


class _Versioned(Protocol):
    @property
    def v(self) -> int: ...


_Record = TypeVar("_Record", bound=_Versioned)


def write_placement(placement: Placement) -> str:
    record = _Placement(
        v=VERSION,
        node=placement.node,
        dialect=placement.dialect,
        containers={
            name: [_Slice(s.uuid, s.index, s.minor, s.cores, s.mib, s.slots) for s in slices]
            for name, slices in placement.containers.items()
        },
    )
    return msgspec.json.encode(record).decode()


@lru_cache(16)
def read_placement(text: str) -> Placement:
    """Whoever reads a pod asks for its placement several times in a row."""
    record = decode(PLACEMENT, text, _Placement, LARGEST_RECORD)
    return Placement(
        node=record.node,
        dialect=record.dialect,
        containers={
            name: tuple(Slice(s.uuid, s.index, s.minor, s.cores, s.mib, s.slots) for s in slices)
            for name, slices in record.containers.items()
        },
    )


def write_inventory(node_gpus: NodeGpus) -> str:
    gpus = [_written(gpu) for gpu in node_gpus.gpus]
    return msgspec.json.encode(
        _Inventory(VERSION, node_gpus.unit_mib, gpus, node_gpus.driver, node_gpus.observed)
    ).decode()


def _written(gpu: Gpu) -> _Gpu:
    links = {link.uuid: link.score for link in gpu.links}
    return _Gpu(**{name: getattr(gpu, name) for name in _PLAIN}, links=links)


def _read_gpu(record: _Gpu) -> Gpu:
    links = tuple(Link(uuid, score) for uuid, score in sorted(record.links.items())) if record.links else ()
    return Gpu(*(*_plain_values(record), links))


def read_inventory(node: str, text: str) -> NodeGpus:
    record = decode(INVENTORY, text, _Inventory, LARGEST_INVENTORY)
    if len({gpu.uuid for gpu in record.gpus}) < len(record.gpus) or len({gpu.index for gpu in record.gpus}) < len(
        record.gpus
    ):
        raise BadRecord(f"{INVENTORY} names a card twice")
    gpus = map(_read_gpu, record.gpus)
    in_order = tuple(sorted(gpus, key=attrgetter("index")))
    return NodeGpus(node, in_order, record.unit_mib, driver=record.driver, observed=record.observed)


def write_observed(uid: str, cards: Mapping[str, Sequence[str]]) -> str:
    """`cards` are the uuids that each container has."""
    record = _Observed(VERSION, uid, {name: sorted(uuids) for name, uuids in sorted(cards.items())})
    return msgspec.json.encode(record).decode()


def read_observed(uid: str, text: str) -> Mapping[str, Sequence[str]]:
    """Raises BadRecord, also for the record of another pod."""
    record = decode(OBSERVED, text, _Observed, LARGEST_RECORD)
    if record.uid != uid:
        raise BadRecord(f"{OBSERVED} is of pod {record.uid[:64]}, not of this one")
    return record.containers


def decode(name: str, text: str, kind: type[_Record], most: int) -> _Record:
    """Raises BadRecord, also for another version than ours."""
    require_size(name, text, most, BadRecord)
    try:
        record = msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise BadRecord(f"{name} cannot be read: {error}") from error
    if record.v != VERSION:
        raise BadRecord(f"{name} has version {record.v}; this Aliquot reads version {VERSION}")
    return record
