"""What a node has: its cards, and the unit in which its memory resources count."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

CORES = 100
"""The cores of a card, in percent. A MIG instance has 100 percent of its own cores."""


NOT_JUDGED: Mapping[str, bool] = {"is_judged": False}
"""Metadata of fields that make no difference to a request, or only to one with a topology."""


class Mode(Enum):
    """How a card may be shared. A card has one mode at a time: MPS would break neighbours that do not use it."""

    ANY = "any"  # the first pod on an empty card decides
    EXCLUSIVE = "exclusive"
    TIME_SLICED = "time-sliced"
    MPS = "mps"


@dataclass(frozen=True, slots=True)
class Link:
    """How well a card reaches another card, on the scale of `aliquot.model.links`."""

    uuid: str
    score: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card, or one static MIG instance. Its identity is the uuid; index (the driver's order) and minor (the
    device node) can differ.

    `slots` is the number of MPS slots of the card. `parent` and `profile` (such as 1g.5gb) make it a MIG instance.
    `brand` and `bus_id` are in the driver's words, empty if unknown.
    """

    uuid: str = field(metadata=NOT_JUDGED)
    index: int = field(metadata=NOT_JUDGED)
    minor: int = field(metadata=NOT_JUDGED)
    model: str
    mib: int
    numa: int | None = field(default=None, metadata=NOT_JUDGED)
    healthy: bool = True
    cordoned: bool = False
    slots: int = 0
    mode: Mode = Mode.ANY
    parent: str = field(default="", metadata=NOT_JUDGED)
    profile: str = ""
    brand: str = field(default="", metadata=NOT_JUDGED)
    bus_id: str = field(default="", metadata=NOT_JUDGED)
    links: tuple[Link, ...] = field(default=(), metadata=NOT_JUDGED)


def made_up_uuid(node: str, index: int) -> str:
    """Stands in for the uuid of a card of which only the index is known."""
    return f"{node}/{index}"


@dataclass(frozen=True)
class NodeGpus:
    """The cards of one node, by ascending index, and the size in MiB of one unit of its memory resources.

    `dialects` are the dialects that the node serves, empty if it does not say. `model` and `pool` come from its labels
    and serve quotas. `registered` are the dialects of which its kubelet knows a resource, None if that is unknown.
    The node is `observed` if another vendor's device plugin chooses its cards, and our agent only reports them.
    `rest_mib` is memory in its status that belongs to none of its cards: an original's plugin reports only the sum,
    which need not be a multiple of the number of cards. It cannot be sold. `driver` is the version of the driver, empty
    if it is unknown.
    """

    node: str
    gpus: tuple[Gpu, ...]
    unit_mib: int
    dialects: frozenset[str] = frozenset()
    model: str = ""
    pool: str = ""
    registered: frozenset[str] | None = None
    rest_mib: int = 0
    driver: str = ""
    observed: bool = False

    @cached_property
    def by_uuid(self) -> Mapping[str, Gpu]:
        return {gpu.uuid: gpu for gpu in self.gpus}

    @cached_property
    def by_index(self) -> Mapping[int, Gpu]:
        return {gpu.index: gpu for gpu in self.gpus}

    @cached_property
    def are_made_up(self) -> bool:
        """Whether no agent publishes the node's inventory. An original's plugin reports no uuids, so the cards are
        called `node/index`."""
        return any(gpu.uuid == made_up_uuid(self.node, gpu.index) for gpu in self.gpus)

    @cached_property
    def parents(self) -> frozenset[str]:
        """Cards that are cut into MIG instances. Only their instances are sold."""
        return frozenset(gpu.parent for gpu in self.gpus if gpu.parent)

    @cached_property
    def offered(self) -> tuple[Gpu, ...]:
        """Cards that kubelet may count for a dialect without MIG: neither MIG instances nor their parents."""
        return tuple(gpu for gpu in self.gpus if not gpu.parent and gpu.uuid not in self.parents)

    def sells(self, gpu: Gpu) -> bool:
        """Whether any part of a card may be sold now."""
        return gpu.healthy and not gpu.cordoned and gpu.uuid not in self.parents

    def serves(self, dialect: str) -> bool:
        return not self.dialects or dialect in self.dialects

    def may_hand_over(self, dialect: str) -> bool:
        """Whether a device plugin may give containers what they ask for in a dialect. If no plugin has registered the
        resource, kubelet starts the containers without a card."""
        return self.registered is None or dialect in self.registered

    def units(self, gpu: Gpu) -> int:
        """How many whole units of memory a card can sell."""
        return gpu.mib // self.unit_mib
