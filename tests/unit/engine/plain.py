"""Fitting, written down as plainly as possible: every way is tried, every rule stands here once more. It shares no rule
with the engine or the model, only their words (cards, parts, placements); it is slow, and too simple to be wrong."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

from aliquot.engine.state import NodeState
from aliquot.model import Charge, Gpu, Life, Mode, NodeGpus, Part, Placement, Request, Topology, Unit

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


def fits(state: NodeState, request: Request) -> bool:
    return any(is_sound(state, request, way) for way in ways(state, request))


def is_sound(state: NodeState, request: Request, way: Way) -> bool:
    """Whether a way keeps every rule."""
    if request.together and len(set(way.values())) > 1:
        return False
    for container in request.containers:
        cards = way[container.name]
        if len({gpu.uuid for gpu in cards}) != container.part.cards:
            return False
        if not all(is_wanted(state.cards, gpu, request) for gpu in cards):
            return False
        if not is_connected(cards, request.constraints.topology):
            return False
    for gpu in state.cards.gpus:
        here = [
            (each.life, cost(each.part, gpu, state.cards.unit_mib))
            for each in request.containers
            if gpu in way[each.name]
        ]
        if here and not takes(gpu, state.used.get(gpu.uuid, Charge()), here):
            return False
    return True


def way_of(state: NodeState, placement: Placement) -> Way:
    by_uuid = {gpu.uuid: gpu for gpu in state.cards.gpus}
    return {name: tuple(by_uuid[part.uuid] for part in slices) for name, slices in placement.containers.items()}


# -- the rules


def is_wanted(cards: NodeGpus, gpu: Gpu, request: Request) -> bool:
    """For sale, and what the pod constraints."""
    if cards.dialects and request.dialect not in cards.dialects:
        return False
    if not gpu.healthy or gpu.cordoned or is_cut(cards, gpu) or not is_meant(gpu, request):
        return False
    return not cards.observed or is_any_card_meant(cards, request)


def is_cut(cards: NodeGpus, gpu: Gpu) -> bool:
    return any(other.parent == gpu.uuid for other in cards.gpus)


def is_any_card_meant(cards: NodeGpus, request: Request) -> bool:
    """Where another device plugin chooses, each card that it may choose has to suit the pod."""
    if request.constraints.topology is not Topology.ANY and any(own.part.cards > 1 for own in request.containers):
        return False
    return all(is_meant(gpu, request) for gpu in cards.gpus if not is_cut(cards, gpu) and is_of_kind(gpu, request))


def is_meant(gpu: Gpu, request: Request) -> bool:
    """What the pod's constraints allow."""
    constraints = request.constraints
    for wish in constraints.models:  # the names that tests use are parts of the models' names
        if any(name.lower() in gpu.model.lower() for name in wish.names) is wish.avoid:
            return False
    if gpu.uuid in constraints.not_uuids or (
        constraints.only_uuids is not None and gpu.uuid not in constraints.only_uuids
    ):
        return False
    return is_of_kind(gpu, request)


def is_of_kind(gpu: Gpu, request: Request) -> bool:
    """A card, or an instance of the profile."""
    mig = request.constraints.mig
    return mig in ("any", gpu.profile) if gpu.profile else mig == ""


def is_connected(cards: Sequence[Gpu], topology: Topology) -> bool:
    if len(cards) == 1 or topology is Topology.ANY:
        return True
    if topology is Topology.NUMA:
        return cards[0].numa is not None and len({gpu.numa for gpu in cards}) == 1
    reached = {cards[0].uuid}
    for _ in cards:
        reached |= {
            gpu.uuid for gpu in cards if any(has_nvlink(gpu, other) for other in cards if other.uuid in reached)
        }
    return len(reached) == len(cards)


def has_nvlink(each: Gpu, other: Gpu) -> bool:
    """Either side may tell it. Links of 100 and more are NVLinks."""
    told = [link.score for link in each.links if link.uuid == other.uuid]
    told += [link.score for link in other.links if link.uuid == each.uuid]
    return any(score >= 100 for score in told)


def cost(part: Part, gpu: Gpu, unit_mib: int) -> Charge:
    """What one card of a part costs."""
    if part.whole:
        return Charge(cores=100, mib=gpu.mib, shares=1)
    amount = part.memory.amount
    if part.memory.unit is Unit.MIB:
        mib = amount
    elif part.memory.unit is Unit.NODE:
        mib = amount * unit_mib
    elif part.memory.unit is Unit.PERCENT:
        mib = gpu.mib * amount // 100
    else:
        mib = gpu.mib * amount // gpu.slots if gpu.slots else gpu.mib + 1
    if not part.slots:
        return Charge(cores=part.cores, mib=mib, shares=1)
    return Charge(cores=part.cores or 100 * part.slots // max(1, gpu.slots), mib=mib, slots=part.slots)


def takes(gpu: Gpu, used: Charge, here: Sequence[tuple[Life, Charge]]) -> bool:
    """Whether a card can hold these parts of one pod beside what is taken of it."""
    by_mps = {part.slots > 0 for _, part in here}
    by_mps |= {True} if used.slots else set()
    by_mps |= {False} if used.shares else set()
    if len(by_mps) > 1:
        return False  # with and without MPS at once
    if by_mps == {True} and gpu.mode not in (Mode.ANY, Mode.MPS):
        return False
    if by_mps == {False} and gpu.mode is Mode.MPS:
        return False
    if gpu.mode is Mode.EXCLUSIVE and any(part.cores != 100 or part.mib != gpu.mib for _, part in here):
        return False
    if used.cores >= 100:
        return False  # sold out, also for who names no cores
    for at_once in moments(here):
        if used.cores + sum(part.cores for part in at_once) > 100:
            return False
        if sum(part.mib for part in at_once) > max(0, gpu.mib - used.mib):
            return False
        if sum(part.slots for part in at_once) > max(0, gpu.slots - used.slots):
            return False
    return True


def moments(here: Sequence[tuple[Life, Charge]]) -> Iterator[list[Charge]]:
    """What runs at the same time: every init container beside the sidecars before it, then all others."""
    for place, (life, part) in enumerate(here):
        if life is Life.INIT:
            yield [part, *(other for kind, other in here[:place] if kind is Life.SIDECAR)]
    yield [part for life, part in here if life is not Life.INIT]
