"""The ledger: placements by pod UID, sums per card, a version per node.

A pod normally has one entry. It has one per node while the answer to a Binding is unknown and the pod was tried
again elsewhere: both stay charged until the cluster shows which one holds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from aliquot.errors import NoRoom
from aliquot.model import CORES, Charge, NodeGpus, Placement


class State(Enum):
    CLAIMED = "claimed"
    BOUND = "bound"


@dataclass(frozen=True)
class Entry:
    uid: str
    placement: Placement
    charges: Mapping[str, Charge]
    state: State

    @property
    def node(self) -> str:
        return self.placement.node


class _NodeBooks:
    """One node: its cards, its entries, and what is taken from each card."""

    def __init__(self) -> None:
        self.cards: NodeGpus | None = None
        self.entries: dict[str, Entry] = {}
        self.used: dict[str, Charge] = {}
        self.version = 0

    def put(self, entry: Entry) -> None:
        self.take_out(entry.uid)
        self.entries[entry.uid] = entry
        self._add(entry.charges, 1)

    def take_out(self, uid: str) -> Entry | None:
        entry = self.entries.pop(uid, None)
        if entry is not None:
            self._add(entry.charges, -1)
        return entry

    def _add(self, charges: Mapping[str, Charge], sign: int) -> None:
        self.version += 1
        for uuid, charge in charges.items():
            total = self.used.get(uuid, Charge()) + Charge(sign * charge.cores, sign * charge.mib)
            if total == Charge():
                self.used.pop(uuid, None)
            else:
                self.used[uuid] = total

    def free(self, uuid: str, *, without: str = "") -> Charge:
        """What is left of a card, never below nothing: an over-sold card is full, not bottomless.

        What the pod `without` holds is not counted.
        """
        gpu = self.cards.by_uuid.get(uuid) if self.cards else None
        if gpu is None:
            return Charge()
        used = self.used.get(uuid, Charge())
        own = self.entries[without].charges.get(uuid, Charge()) if without in self.entries else Charge()
        return Charge(max(0, CORES - used.cores + own.cores), max(0, gpu.mib - used.mib + own.mib))

    def oversold(self) -> Iterator[str]:
        for uuid, used in self.used.items():
            gpu = self.cards.by_uuid.get(uuid) if self.cards else None
            if gpu is not None and (used.mib > gpu.mib or used.cores > CORES):
                yield uuid


class Ledger:
    """Changes only by claim, adopt, release and a change of a node's cards; every change is all or nothing."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeBooks] = {}
        self._nodes_of: dict[str, set[str]] = {}

    # -- what nodes have

    def set_cards(self, cards: NodeGpus) -> None:
        """A node's cards as they are now. What is held stays held, also on a card that is gone or shrank."""
        books = self._nodes.setdefault(cards.node, _NodeBooks())
        books.cards = cards
        books.version += 1

    def drop_node(self, node: str) -> None:
        """A node that is gone sells nothing more. What pods hold there stays theirs until they are gone too: a Binding
        may be on its way, and the node may come back."""
        books = self._nodes.get(node)
        if books is not None:
            books.cards = None
            books.version += 1
            self._tidy(node)

    # -- who holds what

    def claim(self, uid: str, placement: Placement, charges: Mapping[str, Charge]) -> Entry:
        """Take the parts for a pod that is about to be bound. Raises NoRoom, and changes nothing, if one does not fit.

        Claiming again for the same pod and node replaces the earlier claim.
        """
        self._refuse_overcommit(self._nodes.get(placement.node, _NodeBooks()), uid, charges)
        return self._enter(Entry(uid, placement, dict(charges), State.CLAIMED))

    def adopt(self, uid: str, placement: Placement, charges: Mapping[str, Charge]) -> Entry:
        """Enter what the cluster shows as a fact. Never refused: a card sold twice by others is reported, not hidden.

        The pod's claims on other nodes are dropped, since it can only be bound once.
        """
        for other in self.nodes_of(uid) - {placement.node}:
            self._give_back(uid, other)
        return self._enter(Entry(uid, placement, dict(charges), State.BOUND))

    def confirm(self, uid: str, node: str) -> None:
        """The Binding was accepted. A pod that has gone in the meantime stays gone."""
        entry = self.entry(uid, node)
        if entry is not None:
            self._nodes[node].entries[uid] = replace(entry, state=State.BOUND)

    def release(self, uid: str, node: str | None = None) -> list[str]:
        """Give back what a pod holds, on one node or on all. Returns the nodes that changed."""
        nodes = sorted(self._nodes_of.get(uid, ())) if node is None else [node]
        return [name for name in nodes if self._give_back(uid, name)]

    # -- questions

    def entry(self, uid: str, node: str) -> Entry | None:
        books = self._nodes.get(node)
        return books.entries.get(uid) if books else None

    def entries(self, node: str) -> list[Entry]:
        books = self._nodes.get(node)
        return list(books.entries.values()) if books else []

    def nodes_of(self, uid: str) -> frozenset[str]:
        return frozenset(self._nodes_of.get(uid, ()))

    def used(self, node: str) -> Mapping[str, Charge]:
        books = self._nodes.get(node)
        return dict(books.used) if books else {}

    def free(self, node: str, uuid: str) -> Charge:
        books = self._nodes.get(node)
        return books.free(uuid) if books else Charge()

    def version(self, node: str) -> int:
        books = self._nodes.get(node)
        return books.version if books else 0

    def oversold(self, node: str) -> list[str]:
        """The cards of a node of which more was sold than they have."""
        books = self._nodes.get(node)
        return sorted(books.oversold()) if books else []

    # -- inside

    def _enter(self, entry: Entry) -> Entry:
        self._nodes.setdefault(entry.node, _NodeBooks()).put(entry)
        self._nodes_of.setdefault(entry.uid, set()).add(entry.node)
        return entry

    def _give_back(self, uid: str, node: str) -> bool:
        books = self._nodes.get(node)
        if books is None or books.take_out(uid) is None:
            return False
        self._nodes_of[uid].discard(node)
        if not self._nodes_of[uid]:
            del self._nodes_of[uid]
        self._tidy(node)
        return True

    def _tidy(self, node: str) -> None:
        """Nothing is kept of a node that is gone when nobody holds anything there."""
        if self._nodes[node].cards is None and not self._nodes[node].entries:
            del self._nodes[node]

    def _refuse_overcommit(self, books: _NodeBooks, uid: str, charges: Mapping[str, Charge]) -> None:
        for uuid, charge in charges.items():
            if books.cards is None or uuid not in books.cards.by_uuid:
                raise NoRoom(f"the node has no card {uuid}")
            free = books.free(uuid, without=uid)
            if charge.mib > free.mib or charge.cores > free.cores:
                raise NoRoom(
                    f"card {uuid} has {free.mib} MiB and {free.cores} % of cores left, "
                    f"not {charge.mib} MiB and {charge.cores} %"
                )
