"""What pods use of their cards, as far as their node's sample can tell: one rule for metrics, histories and reports."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from aliquot.ledger import Entry
from aliquot.model import NodeGpus
from aliquot.model.bounds import MIB
from aliquot.model.load import IDLE, CardLoad, NodeLoad, PodLoad


@dataclass(frozen=True, slots=True)
class PodUse:
    """What a pod uses of one card, or of all of its cards. None: it is not known."""

    cores: float | None = None
    """Cards that it keeps busy: 1.5 is one and a half."""
    memory_bytes: int | None = None
    share: float | None = None
    """Cards that it uses: of each card the part that it keeps busy, or its part of the memory if that is more."""
    estimated: bool = False
    """Whether `cores` is an estimate."""


def pod_uses(load: NodeLoad, entries: Iterable[Entry], cards: NodeGpus) -> dict[str, PodUse]:
    """By UID of the pods that hold cards of the node. What the sample says of other pods does not count."""
    return {uid: in_all(parts.values()) for uid, parts in part_uses(load, entries, cards).items()}


def part_uses(
    load: NodeLoad, entries: Iterable[Entry], cards: NodeGpus, *, are_all: bool = True
) -> dict[str, dict[str, PodUse]]:
    """The same, card by card: by UID, then by UUID. Unless the entries `are_all` of the node, a pod may have neighbours
    that they do not show."""
    own = list(entries)
    holders: dict[str, list[str]] = {}
    for entry in own:
        for uuid in entry.charges:
            holders.setdefault(uuid, []).append(entry.uid)
    found: dict[str, dict[str, PodUse]] = {}
    for entry in own:
        measured = load.pods.get(entry.uid, {})
        found[entry.uid] = {
            uuid: _part_use(
                measured.get(uuid),
                load.cards.get(uuid, CardLoad()) if uuid in cards.by_uuid else CardLoad(),
                is_alone=are_all and len(holders[uuid]) == 1,
                is_told_apart=any(uuid in load.pods.get(uid, {}) for uid in holders[uuid]),
                card_bytes=cards.by_uuid[uuid].mib * MIB if uuid in cards.by_uuid else 0,
            )
            for uuid in entry.charges
        }
    return found


def in_all(parts: Collection[PodUse]) -> PodUse:
    """The sum over a pod's cards. What is not known of one card is not known of all."""
    if not parts:
        return PodUse()
    cores = [part.cores for part in parts if part.cores is not None]
    memory = [part.memory_bytes for part in parts if part.memory_bytes is not None]
    shares = [part.share for part in parts if part.share is not None]
    return PodUse(
        sum(cores) if len(cores) == len(parts) else None,
        sum(memory) if len(memory) == len(parts) else None,
        sum(shares) if len(shares) == len(parts) else None,
        any(part.estimated for part in parts),
    )


def unused(held: float, use: PodUse) -> float:
    """What a pod wastes of the cards that it holds: what it holds and does not use."""
    return max(0.0, held - (use.share or 0.0))


def _part_use(part: PodLoad | None, card: CardLoad, *, is_alone: bool, is_told_apart: bool, card_bytes: int) -> PodUse:
    cores = _cores(part, card, is_alone=is_alone, is_told_apart=is_told_apart)
    memory = part.memory_bytes if part else 0 if is_told_apart else card.memory_bytes if is_alone else None
    of_memory = (memory or 0) / card_bytes if card_bytes else 0.0
    share = None if cores is None else max(cores, of_memory)
    return PodUse(cores, memory, share, part is not None and part.estimated)


def _cores(part: PodLoad | None, card: CardLoad, *, is_alone: bool, is_told_apart: bool) -> float | None:
    """A pod that the sample does not name is idle if the sample names its neighbours, or if the whole card is idle. An
    agent that sees no processes names no pod."""
    if part is not None and part.cores is not None:
        return part.cores
    if card.cores is not None and (card.cores < IDLE or is_alone):
        return card.cores
    return 0.0 if part is None and is_told_apart else None
