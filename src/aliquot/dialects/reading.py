"""Reads pods in whatever dialect they speak."""

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace

import msgspec

from aliquot.dialects.aliquot import Aliquot
from aliquot.dialects.holding import Demand, Holding
from aliquot.dialects.observed_pods import observed_holding, seen_by_agent, unnamed_cards
from aliquot.dialects.protocol import Dialect, placed_on
from aliquot.dialects.table import Dialects, only_one
from aliquot.errors import BadDemand, BadRecord, NotPlaced
from aliquot.model import (
    CORES,
    NO_CONSTRAINTS,
    Charge,
    Gpu,
    NodeGpus,
    Part,
    Placement,
    Pod,
    Request,
    Slice,
    card_of,
    charges,
    cut,
)
from aliquot.model.bounds import MAX_CONTAINERS
from aliquot.model.records import PLACEMENT, read_placement
from aliquot.model.request import NODE_UNITS, Unit


def demand_of(pod: Pod, dialects: Dialects) -> Demand | None:
    """What a pod asks for; None without GPU. Raises BadDemand, also for a pod that is too large.

    A pod may state constraints in any dialect. Where only one value can hold, ours come first, then those of the pod's
    own dialect.
    """
    count = len(pod.spec.containers) + len(pod.spec.init_containers or ())
    if count > MAX_CONTAINERS:
        raise BadDemand(
            f"spec.containers, spec.initContainers: the pod has {count} containers; at most {MAX_CONTAINERS} are "
            "allowed"
        )
    dialect = dialects.of(pod)
    if dialect is None:
        return None
    request = dialect.demand(pod)
    ours = [other for other in dialects.values() if other.name == Aliquot.name]
    constraints = NO_CONSTRAINTS
    for speaker in dict.fromkeys((*ours, dialect, *dialects.values())):
        own = request.constraints & speaker.constraints(pod) if speaker is dialect else speaker.constraints(pod)
        constraints &= own
    return Demand(dialect, replace(request, constraints=constraints, host=pod.host))


# -- what bound pods hold


def holding_of(pod: Pod, cards: NodeGpus, dialects: Dialects) -> Holding | None:
    """What a bound pod holds; None without GPU. Raises BadDemand, and NotPlaced or BadRecord for a pod that has nothing
    yet."""
    if cards.observed and (holding := observed_holding(pod, cards, dialects)) is not None:
        return holding
    speaking = dialects.spoken_by(pod)
    if len(speaking) > 1 and (given := [dialect for dialect in speaking if _has_got(pod, dialect, cards)]):
        names = ", ".join(dialect.name for dialect in speaking)
        return in_doubt(pod, given, cards, f"the pod has resources of several dialects ({names})")
    dialect = only_one(speaking)
    return _holding(pod, cards, dialect) if dialect else None


def _has_got(pod: Pod, dialect: Dialect, cards: NodeGpus) -> bool:
    """Whether a plugin on the node has given the pod what it asks for in a dialect. On a node with an inventory only a
    container that has run proves that. An original's mark does not, because users can write it."""
    if not cards.may_hand_over(dialect.name):
        return False
    return pod.has_run(dialect.guards) or (cards.are_made_up and dialect.is_marked(pod))


def _holding(pod: Pod, cards: NodeGpus, dialect: Dialect) -> Holding:
    request = dialect.held(pod)
    try:
        placement = placement_of(pod, Demand(dialect, request), cards)
    except (BadRecord, NotPlaced) as error:
        is_broken = isinstance(error, BadRecord) and _has_got(pod, dialect, cards)
        if not is_broken and _gives_unnamed_cards(pod, dialect, cards):
            return Holding(Placement(cards.node, dialect.name, {}), {}, unnamed=unnamed_cards(request, cards))
        among = cards.gpus if isinstance(error, BadRecord) else dialect.unrecorded(pod, cards)
        if among and _has_got(pod, dialect, cards):
            return in_doubt(pod, [dialect], replace(cards, gpus=tuple(among)), str(error))
        known = _partly_gone(pod, Demand(dialect, request), cards)
        if known is None:
            raise
        return Holding(known, charges(known, request), request=request)
    ours = charges(placement, request)
    other = _other_record(pod, dialect, cards)
    theirs = charges(other, request) if other else {}
    why = f"{PLACEMENT} and the record of dialect {dialect.name} name different cards"
    doubt = "" if theirs.keys() <= ours.keys() else why
    return Holding(placement, _both(ours, theirs, cards), doubt, request=None if doubt else request)


def _gives_unnamed_cards(pod: Pod, dialect: Dialect, cards: NodeGpus) -> bool:
    """Whether kubelet gives a bound pod whole cards without asking us which, through another vendor's plugin. Our own
    agent waits for a placement. If no plugin has registered the resource, nobody gives anything."""
    if dialect.names_cards or not cards.may_hand_over(dialect.name):
        return False
    is_served_by_us = not cards.are_made_up and dialect.name in cards.dialects
    return not is_served_by_us or _has_got(pod, dialect, cards)


def _partly_gone(pod: Pod, demand: Demand, cards: NodeGpus) -> Placement | None:
    """Our record on a pod that has not started, if its node no longer shows some of the cards. The pod holds its other
    cards, and the missing ones if they come back. None if there is no such record, if all cards are gone, or if the
    node's names do not identify cards."""
    record = pod.metadata.annotations.get(PLACEMENT)
    try:
        placement = read_placement(record) if record is not None and not cards.are_made_up else None
    except BadRecord:
        return None
    if placement is None or (placement.node, placement.dialect) != (cards.node, demand.dialect.name):
        return None
    parts = {asked.name: asked.part for asked in demand.request.containers}
    if any(len(placement.containers.get(name, ())) != part.cards for name, part in parts.items()):
        return None
    if not any(card_of(own, cards) for own in placement.slices()):
        return None
    can_change = demand.dialect.demand_can_change(pod)
    shown = {
        name: tuple(_cut_anew(own, part, cards, can_change=can_change) for own in placement.containers[name])
        for name, part in parts.items()
    }
    return replace(placement, containers=shown)


def _cut_anew(own: Slice, part: Part, cards: NodeGpus, *, can_change: bool) -> Slice:
    gpu = card_of(own, cards)
    if gpu is None:
        return own
    asked = cut(part, gpu, cards.unit_mib)
    return _larger(replace(own, uuid=gpu.uuid), asked, gpu) if can_change else asked


def _other_record(pod: Pod, dialect: Dialect, cards: NodeGpus) -> Placement | None:
    """What an original wrote on a pod that also has our record, if it is something else. We write both alike, but an
    original may correct its own record, and users may write either.

    Originals name cards by numbers, which change when cards are renumbered or an inventory appears. Our record has the
    numbers of that time: a record with exactly these numbers names the same cards.
    """
    annotations = dict(pod.metadata.annotations)
    record = annotations.pop(PLACEMENT, None)
    if record is None or dialect.repeats(pod, read_placement(record)):
        return None
    alone = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))
    demand = Demand(dialect, dialect.held(alone))
    for numbered in (_as_numbered_in(record, cards), cards):
        try:
            other = placement_of(alone, demand, numbered)
        except (BadRecord, NotPlaced):
            continue
        if numbered is cards or {own.uuid for own in other.slices()} == numbered.by_uuid.keys():
            return other
    return None


def _as_numbered_in(record: str, cards: NodeGpus) -> NodeGpus:
    """The cards of one of our records, and no others, with the numbers that they had when it was written."""
    written = {gpu.uuid: (own, gpu) for own in read_placement(record).slices() if (gpu := card_of(own, cards))}
    return replace(cards, gpus=tuple(replace(gpu, index=own.index, minor=own.minor) for own, gpu in written.values()))


def _both(ours: Mapping[str, Charge], theirs: Mapping[str, Charge], cards: NodeGpus) -> Mapping[str, Charge]:
    """The cards of two records. A card in both counts with the larger part."""
    if theirs == ours:
        return ours
    both = dict(ours)
    for uuid, charge in theirs.items():
        other = _within(charge, cards.by_uuid[uuid])
        own = ours.get(uuid, other)
        both[uuid] = own.at_least(other)._replace(shares=own.shares)  # both records describe the same parts
    return both


def holding_among(pod: Pod | None, cards: NodeGpus, dialects: Dialects, uuids: Set[str], why: str) -> Holding:
    """What a pod holds that has a part of some of these cards, if nothing tells how much. It is charged all that it can
    have of each card, or the whole cards if the pod is gone or its demand cannot be read."""
    among = replace(cards, gpus=tuple(gpu for gpu in cards.gpus if gpu.uuid in uuids))
    if pod is not None and (speaking := dialects.spoken_by(pod)):
        held = in_doubt(pod, speaking, among, why)
        if any(charge != Charge() for charge in held.charges.values()):
            return held
    everything = {gpu.uuid: Part(whole=True).on(gpu, cards.unit_mib) for gpu in among.gpus}
    return Holding(Placement(cards.node, "", {}), everything, why)


def holding_as_given(pod: Pod, cards: NodeGpus, dialects: Dialects, given: Mapping[str, Set[str]]) -> Holding:
    """What a pod holds if a device plugin has given these cards, by UUID, to its containers. A record on the pod must
    name the same cards. Without a record the pod has what it was given, as with NVIDIA's plugin, which writes none."""
    uuids = frozenset[str]().union(*given.values())
    why = (
        f"another device plugin gave it {', '.join(sorted(uuids))}, but its annotations name other cards; "
        "delete the pod, so that it is placed again"
    )
    try:
        dialect = only_one(dialects.spoken_by(pod))
        if dialect is not None:
            request = dialect.held(pod)
            for placement in _recorded(pod, dialect, request, cards) or _as_given(request, cards, given):
                if all(_cards_in(placement, container) == own for container, own in given.items() if own):
                    return Holding(placement, charges(placement, request), request=request)
    except (BadDemand, BadRecord) as error:
        why = str(error)
    return holding_among(pod, cards, dialects, uuids, why)


def _recorded(pod: Pod, dialect: Dialect, request: Request, cards: NodeGpus) -> Sequence[Placement]:
    """The placements in our record and in the original's. Raises BadRecord."""
    try:
        ours = placement_of(pod, Demand(dialect, request), cards)
    except NotPlaced:
        return ()
    other = _other_record(pod, dialect, cards)
    return (ours, other) if other else (ours,)


def _as_given(request: Request, cards: NodeGpus, given: Mapping[str, Set[str]]) -> Sequence[Placement]:
    """Empty if the number of cards differs from what a container asks for, or if a card is not on the node."""
    gpus = {
        asked.name: [gpu for gpu in cards.gpus if gpu.uuid in given.get(asked.name, ())] for asked in request.containers
    }
    if any(len(gpus[asked.name]) != asked.part.cards for asked in request.containers):
        return ()
    return (placed_on(request, gpus, cards),)


def _cards_in(placement: Placement, container: str) -> Set[str]:
    return {part.uuid for part in placement.containers.get(container, ())}


def in_doubt(pod: Pod, speaking: Sequence[Dialect], cards: NodeGpus, why: str) -> Holding:
    """Charges the pod on every card with all that it can have of it in these dialects."""
    everywhere = dict.fromkeys(cards.by_uuid, Charge())
    for dialect in speaking:
        with suppress(BadDemand):  # in this dialect the pod asks for something that nobody gives
            for gpu in cards.gpus:
                everywhere[gpu.uuid] += _at_most(pod, dialect, gpu, cards)
    charged = {uuid: _within(charge, cards.by_uuid[uuid]) for uuid, charge in everywhere.items()}
    return Holding(Placement(cards.node, speaking[0].name, {}), charged, why)


def _at_most(pod: Pod, dialect: Dialect, gpu: Gpu, cards: NodeGpus) -> Charge:
    """All that a pod can have of one card."""
    request = dialect.by_spec(pod)
    if request is not None:
        parts = {container.name: (cut(container.part, gpu, cards.unit_mib),) for container in request.containers}
        return charges(Placement(cards.node, request.dialect, parts), request)[gpu.uuid]
    by_mps = any(asked.part.slots for asked in dialect.held(pod).containers)
    return Charge(CORES, gpu.mib, slots=gpu.slots) if by_mps and gpu.slots else Part(whole=True).on(gpu, cards.unit_mib)


def _within(charge: Charge, gpu: Gpu) -> Charge:
    """The charge, but at most what the card has."""
    return charge.at_most(Charge(CORES, gpu.mib, gpu.slots or charge.slots, charge.shares))


def placement_of(pod: Pod, demand: Demand, cards: NodeGpus) -> Placement:
    """Where a bound pod was placed: our record, else its dialect's. Raises NotPlaced or BadRecord.

    The record only says which cards. Their device nodes never come from it, and the size of the parts only if users can
    change the demand as easily as the record.
    """
    record = pod.metadata.annotations.get(PLACEMENT)
    if record is None:
        placement = demand.dialect.read_back(pod, cards) or _placed_as_seen(pod, demand, cards)
        key = f"the record of dialect {demand.dialect.name}"
    else:
        placement, key = read_placement(record), PLACEMENT
    if placement is None:
        raise NotPlaced(f"pod {pod.key} is on node {pod.spec.node_name} without a placement")
    if placement.node != pod.spec.node_name:
        raise BadRecord(f"{key} names node {placement.node}, but the pod is bound to {pod.spec.node_name}")
    if placement.dialect != demand.dialect.name:
        raise BadRecord(f"{key} is of dialect {placement.dialect}, but the pod uses dialect {demand.dialect.name}")
    known = _on_known_cards(placement, key, cards)
    can_change = demand.dialect.demand_can_change(pod)
    return _as_demanded(known, demand.request, cards, key, can_change=can_change)


def _placed_as_seen(pod: Pod, demand: Demand, cards: NodeGpus) -> Placement | None:
    """Where a pod runs that our agent has adopted from another vendor's plugin. Only our agent's record names its
    cards."""
    if demand.dialect.names_cards or not pod.has_run(demand.dialect.guards):
        return None
    named = seen_by_agent(pod, cards)
    if any(len(named.get(asked.name, ())) != asked.part.cards for asked in demand.request.containers):
        return None
    return placed_on(demand.request, named, cards)


def _on_known_cards(placement: Placement, key: str, cards: NodeGpus) -> Placement:
    """The same cards as the node shows them now."""
    known = {}
    for name, parts in placement.containers.items():
        known[name] = tuple([_on_known_card(part, key, cards) for part in parts])
        if len(parts) > 1 and len({part.uuid for part in known[name]}) < len(parts):
            raise BadRecord(f"{key} names a card twice for container {name}")
    return Placement(placement.node, placement.dialect, known)


def _on_known_card(part: Slice, key: str, cards: NodeGpus) -> Slice:
    gpu = card_of(part, cards)
    if gpu is None:
        raise BadRecord(f"{key} names card {part.uuid[:64]}, which node {cards.node} does not have")
    if (part.uuid, part.index, part.minor) == (gpu.uuid, gpu.index, gpu.minor):
        return part
    return replace(part, uuid=gpu.uuid, index=gpu.index, minor=gpu.minor)


def _as_demanded(placement: Placement, request: Request, cards: NodeGpus, key: str, *, can_change: bool) -> Placement:
    """Every container holds what it asks for, whatever the record says, because users can write records. If users can
    change the demand as easily, the larger of the two counts."""
    containers = dict(placement.containers)
    for asked in request.containers:
        parts, wanted = containers.get(asked.name, ()), asked.part.cards
        too_many = len(parts) > wanted and key == PLACEMENT  # originals know best what they gave
        if not parts or len(parts) < wanted or too_many:
            raise BadRecord(f"{key} names {len(parts)} cards for container {asked.name}, which asks for {wanted}")
        gpus = [cards.by_uuid[part.uuid] for part in parts]
        cuts = [cut(asked.part, gpu, cards.unit_mib) for gpu in gpus]
        if not can_change:
            cuts = [_in_older_unit(asked.part, *each) for each in zip(parts, cuts, gpus, strict=True)]
        containers[asked.name] = tuple(map(_larger, parts, cuts, gpus) if can_change else cuts)
    return Placement(placement.node, placement.dialect, containers)


def _in_older_unit(part: Part, recorded: Slice, now: Slice, gpu: Gpu) -> Slice:
    """A node's unit of memory may have changed since the pod was placed: a record of the same amount in a larger unit
    tells what the pod has."""
    memory = part.memory
    if memory.unit is not Unit.NODE or not now.mib < recorded.mib <= gpu.mib:
        return now
    return replace(now, mib=recorded.mib) if recorded.mib in (memory.amount * unit for unit in NODE_UNITS) else now


def _larger(recorded: Slice, asked: Slice, gpu: Gpu) -> Slice:
    """The card was handed over in the mode of the record. A forged record or a new demand never exceeds the card."""
    same_mode = bool(recorded.slots) == bool(asked.slots)
    other = asked if same_mode else recorded
    return replace(
        recorded,
        cores=min(max(recorded.cores, other.cores), CORES),
        mib=min(max(recorded.mib, other.mib), gpu.mib),
        slots=min(max(recorded.slots, other.slots), gpu.slots),
    )
