"""What a node has: cards, and the unit in which its memory is counted."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

CORES = 100
"""A card's cores are counted in percent; so are those of a MIG instance, of the instance."""


class Mode(Enum):
    """How a card may be shared. A card has one mode at a time: MPS would break neighbours that do not use it."""

    ANY = "any"  # the first pod on an empty card decides
    EXCLUSIVE = "exclusive"
    TIME_SLICED = "time-sliced"
    MPS = "mps"


@dataclass(frozen=True, slots=True)
class Link:
    """How well a card reaches another one, on the scale of `aliquot.model.links`."""

    uuid: str
    score: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card, or one static MIG instance. Its identity is the uuid; index (NVML's order) and minor (the device node)
    can differ.

    `slots` is into how many MPS parts the card is cut; `parent` and `profile` (such as 1g.5gb) make it an instance.
    """

    uuid: str
    index: int
    minor: int
    model: str
    mib: int
    numa: int | None = None
    healthy: bool = True
    cordoned: bool = False
    slots: int = 0
    mode: Mode = Mode.ANY
    parent: str = ""
    profile: str = ""
    links: tuple[Link, ...] = ()


def made_up_uuid(node: str, index: int) -> str:
    """What stands for the uuid of a card of which only the index is known."""
    return f"{node}/{index}"


@dataclass(frozen=True)
class NodeGpus:
    """The cards of one node, by ascending index, and how many MiB one unit of its memory resources is.

    `dialects` are those that the node serves, empty if it does not say; `model` and `pool` are what its labels call its
    cards, for quotas. `registered` are the dialects of which kubelet there knows a resource, None if nobody can say.
    `rest_mib` is memory in its status beyond that of its cards: an original's plug-in tells only the sum, which need
    not be a multiple of their number. It cannot be sold.
    """

    node: str
    gpus: tuple[Gpu, ...]
    unit_mib: int
    dialects: frozenset[str] = frozenset()
    model: str = ""
    pool: str = ""
    registered: frozenset[str] | None = None
    rest_mib: int = 0

    @cached_property
    def by_uuid(self) -> Mapping[str, Gpu]:
        return {gpu.uuid: gpu for gpu in self.gpus}

    @cached_property
    def by_index(self) -> Mapping[int, Gpu]:
        return {gpu.index: gpu for gpu in self.gpus}

    @cached_property
    def are_made_up(self) -> bool:
        """Nobody publishes the node's inventory: what an original's plug-in tells has no uuids, but `node/index`."""
        return any(gpu.uuid == made_up_uuid(self.node, gpu.index) for gpu in self.gpus)

    @cached_property
    def parents(self) -> frozenset[str]:
        """Cards that are cut into instances: these are sold in their place."""
        return frozenset(gpu.parent for gpu in self.gpus if gpu.parent)

    @cached_property
    def offered(self) -> tuple[Gpu, ...]:
        """Cards that kubelet may count for a dialect without MIG: neither instances nor what is cut into them."""
        return tuple(gpu for gpu in self.gpus if not gpu.parent and gpu.uuid not in self.parents)

    def sells(self, gpu: Gpu) -> bool:
        """Whether anything of a card may be sold now."""
        return gpu.healthy and not gpu.cordoned and gpu.uuid not in self.parents

    def serves(self, dialect: str) -> bool:
        return not self.dialects or dialect in self.dialects

    def may_hand_over(self, dialect: str) -> bool:
        """Whether a device plug-in may give containers what they ask for in a dialect. Where none has registered it,
        kubelet starts them all the same, without a card."""
        return self.registered is None or dialect in self.registered

    def units(self, gpu: Gpu) -> int:
        """Whole units of memory that a card can sell."""
        return gpu.mib // self.unit_mib
