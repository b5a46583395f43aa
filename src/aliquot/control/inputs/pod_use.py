"""What each pod uses of its cards, as far as its node's sample can tell."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aliquot.ledger import Entry
from aliquot.model.load import IDLE, NodeLoad, PodLoad


@dataclass(frozen=True, slots=True)
class Use:
    """`cores` are cards: 1.5 is one and a half. None if nobody can tell."""

    cores: float | None
    memory_bytes: int


def uses(load: NodeLoad, entries: Iterable[Entry]) -> dict[str, Use]:
    """By UID of the pods that hold cards of the node. What the sample says of others does not count."""
    own = list(entries)
    holders: dict[str, list[str]] = {}
    for entry in own:
        for uuid in entry.charges:
            holders.setdefault(uuid, []).append(entry.uid)
    return {entry.uid: _use(entry, load, holders) for entry in own}


def _use(entry: Entry, load: NodeLoad, holders: Mapping[str, list[str]]) -> Use:
    measured = load.pods.get(entry.uid, {})
    parts = [_cores(uuid, measured.get(uuid), load, holders[uuid]) for uuid in entry.charges]
    known = [part for part in parts if part is not None]
    memory = sum(part.memory_bytes for uuid, part in measured.items() if uuid in entry.charges)
    return Use(sum(known) if len(known) == len(parts) else None, memory)


def _cores(uuid: str, part: PodLoad | None, load: NodeLoad, holders: list[str]) -> float | None:
    """A pod that the sample does not name is idle if the sample names its neighbours, or if the whole card is idle. An
    agent that sees no processes names nobody."""
    if part is not None and part.cores is not None:
        return part.cores
    card = load.cards.get(uuid)
    busy = None if card is None else card.cores
    if busy is not None and (busy < IDLE or len(holders) == 1):
        return busy
    is_told_apart = any(uuid in load.pods.get(uid, {}) for uid in holders)
    return 0.0 if part is None and is_told_apart else None
