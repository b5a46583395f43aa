"""Where a pod was put, and what that costs each card."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aliquot.model.charge import Charge, Life, peak_charge
from aliquot.model.gpu import Gpu
from aliquot.model.request import Part, Request


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of one card, given to one container."""

    uuid: str
    index: int
    minor: int
    cores: int
    mib: int
    slots: int = 0

    @property
    def charge(self) -> Charge:
        return Charge(self.cores, self.mib, self.slots, shares=0 if self.slots else 1)


def cut(part: Part, gpu: Gpu, unit_mib: int) -> Slice:
    """What a container gets of one card for its part."""
    charge = part.on(gpu, unit_mib)
    return Slice(gpu.uuid, gpu.index, gpu.minor, charge.cores, charge.mib, charge.slots)


@dataclass(frozen=True)
class Placement:
    node: str
    dialect: str
    containers: Mapping[str, tuple[Slice, ...]]

    def slices(self) -> Iterable[Slice]:
        for slices in self.containers.values():
            yield from slices


def charges(placement: Placement, request: Request) -> dict[str, Charge]:
    """What a placed pod takes from each card, by uuid: init containers count as max, the rest as sum.

    A container that the request does not know counts as one that runs all the time.
    """
    lives = {container.name: container.life for container in request.containers}
    ordered = [name for name in lives if name in placement.containers]
    ordered += [name for name in placement.containers if name not in lives]
    held: dict[str, list[tuple[Life, Charge]]] = {}
    for name in ordered:
        for part in placement.containers[name]:
            held.setdefault(part.uuid, []).append((lives.get(name, Life.MAIN), part.charge))
    return {uuid: peak_charge(parts) for uuid, parts in held.items()}
