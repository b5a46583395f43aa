"""Fitting, written down as plainly as possible: every way is tried. Slow, and too simple to be wrong."""

from collections.abc import Iterator, Mapping
from itertools import combinations, product

from aliquot.engine.state import NodeState
from aliquot.engine.topology import allows, wiring_of
from aliquot.model import Charge, Gpu, NodeGpus, Part, Placement, Request, Slice, charges
from aliquot.model.selling import conflict

Way = Mapping[str, tuple[Gpu, ...]]


def ways(state: NodeState, request: Request) -> Iterator[Way]:
    """Every way to give each container its cards, whether it fits or not."""
    gpus = state.cards.gpus
    names = [container.name for container in request.containers]
    if request.together:
        count = max(container.part.cards for container in request.containers)
        for cards in combinations(gpus, count):
            yield {container.name: cards[: container.part.cards] for container in request.containers}
        return
    choices = [list(combinations(gpus, container.part.cards)) for container in request.containers]
    for way in product(*choices):
        yield dict(zip(names, way, strict=True))


def is_sound(state: NodeState, request: Request, way: Way) -> bool:
    """Whether a way keeps every rule."""
    rows = {gpu.uuid: row for row, gpu in enumerate(state.cards.gpus)}
    wiring = wiring_of(state.cards.gpus)
    for container in request.containers:
        cards = way[container.name]
        if len({gpu.uuid for gpu in cards}) != container.part.cards:
            return False
        if not allows(wiring, [rows[gpu.uuid] for gpu in cards], request.wishes.topology):
            return False
        if not all(is_wanted(state.cards, gpu, request) for gpu in cards):
            return False
        if any(conflict(gpu, state.taken(gpu), part_of(state, gpu, container.part)) for gpu in cards):
            return False
    if request.together and len(set(way.values())) > 1:
        return False
    held = charges(placement_of(state, request, way), request)
    return not any(conflict(state.cards.by_uuid[uuid], state.used.get(uuid, Charge()), held[uuid]) for uuid in held)


def is_wanted(cards: NodeGpus, gpu: Gpu, request: Request) -> bool:
    wishes = request.wishes
    return (
        cards.serves(request.dialect)
        and cards.sells(gpu)
        and wishes.allows_model(gpu.model)
        and wishes.allows_uuid(gpu.uuid)
        and wishes.allows_instance(gpu.profile)
    )


def part_of(state: NodeState, gpu: Gpu, part: Part) -> Charge:
    return part.on(gpu, state.cards.unit_mib)


def placement_of(state: NodeState, request: Request, way: Way) -> Placement:
    slices = {}
    for container in request.containers:
        parts = [(gpu, part_of(state, gpu, container.part)) for gpu in way[container.name]]
        slices[container.name] = tuple(
            Slice(gpu.uuid, gpu.index, gpu.minor, charge.cores, charge.mib, charge.slots) for gpu, charge in parts
        )
    return Placement(state.cards.node, request.dialect, slices)


def way_of(state: NodeState, placement: Placement) -> Way:
    by_uuid = state.cards.by_uuid
    return {name: tuple(by_uuid[part.uuid] for part in slices) for name, slices in placement.containers.items()}


def fits(state: NodeState, request: Request) -> bool:
    return any(is_sound(state, request, way) for way in ways(state, request))
