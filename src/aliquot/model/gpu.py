"""What a node has: cards, and the unit in which its memory is counted."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

CORES = 100
"""A card's cores are counted in percent."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card. Its identity is the uuid; index (NVML's order) and minor (the device node) can differ."""

    uuid: str
    index: int
    minor: int
    model: str
    mib: int
    numa: int | None = None
    healthy: bool = True


@dataclass(frozen=True)
class NodeGpus:
    """The cards of one node, by ascending index, and how many MiB one unit of its memory resources is."""

    node: str
    gpus: tuple[Gpu, ...]
    unit_mib: int

    @cached_property
    def by_uuid(self) -> Mapping[str, Gpu]:
        return {gpu.uuid: gpu for gpu in self.gpus}

    @cached_property
    def by_index(self) -> Mapping[int, Gpu]:
        return {gpu.index: gpu for gpu in self.gpus}

    def units(self, gpu: Gpu) -> int:
        """Whole units of memory that a card can sell."""
        return gpu.mib // self.unit_mib
