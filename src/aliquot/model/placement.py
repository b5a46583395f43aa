"""Where a pod was put, and what that costs each card."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aliquot.model.request import Life, Request, peak


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of one card, given to one container."""

    uuid: str
    index: int
    minor: int
    cores: int
    mib: int


@dataclass(frozen=True)
class Placement:
    node: str
    dialect: str
    containers: Mapping[str, tuple[Slice, ...]]

    def slices(self) -> Iterable[Slice]:
        for slices in self.containers.values():
            yield from slices


@dataclass(frozen=True, slots=True)
class Charge:
    """What a pod takes from one card."""

    cores: int = 0
    mib: int = 0

    def __add__(self, other: "Charge") -> "Charge":
        return Charge(self.cores + other.cores, self.mib + other.mib)


def charges(placement: Placement, request: Request) -> dict[str, Charge]:
    """What a placed pod takes from each card, by uuid: init containers count as max, the rest as sum.

    A container that the request does not know counts as one that runs all the time.
    """
    lives = {container.name: container.life for container in request.containers}
    ordered = [name for name in lives if name in placement.containers]
    ordered += [name for name in placement.containers if name not in lives]
    cores: dict[str, list[tuple[Life, int]]] = {}
    mib: dict[str, list[tuple[Life, int]]] = {}
    for name in ordered:
        for part in placement.containers[name]:
            life = lives.get(name, Life.MAIN)
            cores.setdefault(part.uuid, []).append((life, part.cores))
            mib.setdefault(part.uuid, []).append((life, part.mib))
    return {uuid: Charge(peak(cores[uuid]), peak(mib[uuid])) for uuid in cores}
