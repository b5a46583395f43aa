"""Where a pod was placed, and what that costs each card."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from aliquot.model.charge import Charge, Life, peak_charge
from aliquot.model.gpu import Gpu, NodeGpus, made_up_uuid
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


@dataclass(frozen=True, slots=True)
class Placement:
    node: str
    dialect: str
    containers: Mapping[str, tuple[Slice, ...]]

    def slices(self) -> Iterable[Slice]:
        for slices in self.containers.values():
            yield from slices


def card_of(part: Slice, cards: NodeGpus) -> Gpu | None:
    """The card that a slice belongs to, whatever its node calls the card now. None if the node no longer has it.

    A uuid is a card's identity. The index identifies a card only between a made-up id and a real uuid: the node shows
    one or the other as its inventory comes and goes.
    """
    known = cards.by_uuid.get(part.uuid)
    if known is None and (part.uuid == made_up_uuid(cards.node, part.index)) != cards.are_made_up:
        return cards.by_index.get(part.index)
    return known


def numbered_as(placement: Placement, cards: NodeGpus) -> Placement:
    """The same placement with the numbers that its cards have now. A card that the node does not show keeps its old
    numbers."""
    containers = {
        name: tuple(_numbered_as(part, cards) for part in parts) for name, parts in placement.containers.items()
    }
    return replace(placement, containers=containers)


def _numbered_as(part: Slice, cards: NodeGpus) -> Slice:
    gpu = cards.by_uuid.get(part.uuid)
    return part if gpu is None else replace(part, index=gpu.index, minor=gpu.minor)


def as_shown(placement: Placement, request: Request, cards: NodeGpus) -> Placement:
    """The same placement with the names and numbers that the node uses for its cards now. Slices of a card with a new
    name are cut again, because its size may be known better. A card that is gone keeps its name."""
    asked = {container.name: container.part for container in request.containers}
    shown = {
        name: tuple(_as_shown(part, asked.get(name), cards) for part in parts)
        for name, parts in placement.containers.items()
    }
    return replace(placement, containers=shown)


def _as_shown(own: Slice, asked: Part | None, cards: NodeGpus) -> Slice:
    gpu = card_of(own, cards)
    if gpu is None or gpu.uuid == own.uuid:
        return _numbered_as(own, cards)
    if asked is None:
        return replace(own, uuid=gpu.uuid, index=gpu.index, minor=gpu.minor)
    return cut(asked, gpu, cards.unit_mib)


def charges(placement: Placement, request: Request) -> dict[str, Charge]:
    """What a placed pod takes from each card, by uuid: the peak of its containers."""
    return charges_by_life(placement, {container.name: container.life for container in request.containers})


def charges_by_life(placement: Placement, lives: Mapping[str, Life]) -> dict[str, Charge]:
    """The same, with the containers in the order in which they start. A container that is not among them counts as a
    main container."""
    ordered = [name for name in lives if name in placement.containers]
    ordered += [name for name in placement.containers if name not in lives]
    held: dict[str, list[tuple[Life, Charge]]] = {}
    for name in ordered:
        for part in placement.containers[name]:
            held.setdefault(part.uuid, []).append((lives.get(name, Life.MAIN), part.charge))
    return {uuid: peak_charge(parts) for uuid, parts in held.items()}
