"""CPU and memory of a node: what a pod requests besides cards, and what a node has left for pods."""

from dataclasses import dataclass
from functools import lru_cache

UNKNOWN = 1 << 40
"""More than any node has: where nobody knows what is left, nothing is short."""


@dataclass(frozen=True, slots=True)
class Host:
    """`cpu` in thousandths of a core, `memory` in MiB."""

    cpu: int = 0
    memory: int = 0

    def __add__(self, other: "Host") -> "Host":
        return Host(self.cpu + other.cpu, self.memory + other.memory)

    def __sub__(self, other: "Host") -> "Host":
        return Host(self.cpu - other.cpu, self.memory - other.memory)


@lru_cache(maxsize=4096)
def shared_host(cpu: int, memory: int) -> Host:
    """The same object for the same amounts: of 100,000 pods most request the same as others."""
    return Host(cpu, memory)


NO_HOST = Host()
UNKNOWN_HOST = Host(UNKNOWN, UNKNOWN)
