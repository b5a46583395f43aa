"""What a pod asks for, said without any vendor's words."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property


class Unit(Enum):
    MIB = "MiB"
    NODE = "node units"


@dataclass(frozen=True, slots=True)
class Memory:
    """An amount of GPU memory; what one node unit is, only the node can tell."""

    amount: int
    unit: Unit

    def mib(self, unit_mib: int) -> int:
        return self.amount if self.unit is Unit.MIB else self.amount * unit_mib


class Life(Enum):
    """When a container runs, which decides how its part counts."""

    MAIN = "main"
    SIDECAR = "sidecar"
    INIT = "init"


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    name: str
    cores: int
    memory: Memory
    life: Life = Life.MAIN


@dataclass(frozen=True)
class Request:
    """All GPU containers of one pod, in the order in which they start; they share one card."""

    uid: str
    pod: str
    dialect: str
    containers: tuple[ContainerRequest, ...]

    @cached_property
    def cores(self) -> int:
        return peak((container.life, container.cores) for container in self.containers)

    @cached_property
    def memory(self) -> Memory:
        """The most that the pod holds at any time. A dialect asks in one unit, so the sizes compare."""
        (unit,) = {container.memory.unit for container in self.containers}
        return Memory(peak((c.life, c.memory.amount) for c in self.containers), unit)


def peak(parts: Iterable[tuple[Life, int]]) -> int:
    """The most that containers hold at any time: init containers one after another, the rest together.

    A sidecar runs beside every init container that starts after it, as Kubernetes counts it.
    """
    main = sidecars = highest_init = 0
    for life, size in parts:
        if life is Life.SIDECAR:
            sidecars += size
        elif life is Life.INIT:
            highest_init = max(highest_init, sidecars + size)
        else:
            main += size
    return max(main + sidecars, highest_init)
