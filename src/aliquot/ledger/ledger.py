"""The ledger: placements by pod UID, sums per card, a version per node.

A pod normally has one entry. It has one per node while the answer to a Binding is unknown and the pod was tried
again elsewhere: both stay charged until the cluster shows which one holds.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from aliquot.errors import AlreadyHeld, NoRoom, NotPlaced
from aliquot.model import Charge, Gpu, NodeGpus, Placement, Request, as_shown, numbered_as
from aliquot.model import charges as charges_of
from aliquot.model.selling import conflict, is_oversold, left_of


class State(Enum):
    """A reservation is kept for a pod for a while, and expires. A claim belongs to a write that is about to be sent, or
    whose fate is unknown. What is bound, the cluster shows."""

    RESERVED = "reserved"
    CLAIMED = "claimed"
    BOUND = "bound"


@dataclass(frozen=True, slots=True)
class Owner:
    """A pod, as far as the ledger cares: its UID is its identity, the rest is for quotas, preemption and people."""

    uid: str
    pod: str = ""
    priority: int = 0

    @property
    def namespace(self) -> str:
        return self.pod.partition("/")[0]


@dataclass(frozen=True)
class Entry:
    """`since` is when the part was taken. `until` is when a reservation expires; nothing else has one.

    `placement` has the uuids that its cards had when it was decided, with their numbers of now; `charges` has the names
    that the node has for them now: with the `request` the one follows from the other.
    """

    owner: Owner
    placement: Placement
    charges: Mapping[str, Charge]
    state: State
    since: float = 0.0
    until: float | None = None
    request: Request | None = None

    @property
    def uid(self) -> str:
        return self.owner.uid

    @property
    def node(self) -> str:
        return self.placement.node

    def on(self, cards: NodeGpus) -> "Entry":
        """The same on the cards as the node shows them now: with their numbers, which are all that is left to go by if
        the inventory vanishes, and, with a request, charged under the names that they have."""
        now = self._numbered_as(cards)
        if now.request is None or now.charges.keys() <= cards.by_uuid.keys():
            return now
        return replace(now, charges=charges_of(as_shown(now.placement, now.request, cards), now.request))

    def _numbered_as(self, cards: NodeGpus) -> "Entry":
        placement = numbered_as(self.placement, cards)
        return self if placement == self.placement else replace(self, placement=placement)


class _NodeAccount:
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
            before = self.used.get(uuid, Charge())
            total = before + charge if sign > 0 else before - charge
            if total == Charge():
                self.used.pop(uuid, None)
            else:
                self.used[uuid] = total

    def summed(self) -> dict[str, Charge]:
        """What the entries take of each card, added up anew."""
        sums: dict[str, Charge] = {}
        for entry in self.entries.values():
            for uuid, charge in entry.charges.items():
                sums[uuid] = sums.get(uuid, Charge()) + charge
        return {uuid: charge for uuid, charge in sums.items() if charge != Charge()}

    def held(self, uuid: str, *, without: str = "") -> Charge:
        """What is taken of a card; what the pod `without` holds is not counted."""
        own = self.entries[without].charges.get(uuid, Charge()) if without in self.entries else Charge()
        return self.used.get(uuid, Charge()) - own

    def held_relative(self, gpu: Gpu, *, without: str) -> str:
        """The card that an instance was cut from, or an instance of a card, if somebody else holds it; else ""."""
        relatives = [other.uuid for other in self.cards.gpus if other.parent == gpu.uuid] if self.cards else []
        relatives += [gpu.parent] if gpu.parent else []
        return next((uuid for uuid in relatives if self.held(uuid, without=without) != Charge()), "")

    def free(self, uuid: str) -> Charge:
        """What is left of a card, never below nothing: an over-sold card is full, not bottomless."""
        gpu = self.cards.by_uuid.get(uuid) if self.cards else None
        return left_of(gpu, self.used.get(uuid, Charge())) if gpu else Charge()

    def oversold(self) -> Iterator[str]:
        for uuid, used in self.used.items():
            gpu = self.cards.by_uuid.get(uuid) if self.cards else None
            if gpu is not None and is_oversold(gpu, used):
                yield uuid


class Ledger:
    """Changes only by claim, reassign, adopt, release and a change of a node's cards; each is all or nothing."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeAccount] = {}
        self._nodes_of: dict[str, set[str]] = {}
        self._reserved: set[tuple[str, str]] = set()
        """UID and node of every reservation."""
        self._unbound: Counter[str] = Counter()
        """How many reservations and claims there are, by namespace."""
        self.changes = 0
        """Grows with every change, so that who looks twice sees whether anything happened."""

    # -- what nodes have

    def set_cards(self, cards: NodeGpus) -> None:
        """A node's cards as they are now. What is held stays held, also on a card that is gone or shrank, and under the
        new name of a card that got one."""
        account = self._nodes.setdefault(cards.node, _NodeAccount())
        account.cards = cards
        for entry in list(account.entries.values()):
            if (now := entry.on(cards)) is not entry:
                account.put(now)
        account.version += 1
        self.changes += 1

    def drop_node(self, node: str) -> None:
        """A node that is gone sells nothing more. What pods hold there stays theirs until they are gone too: a Binding
        may be on its way, and the node may come back."""
        account = self._nodes.get(node)
        if account is not None:
            account.cards = None
            account.version += 1
            self.changes += 1
            self._tidy(node)

    # -- who holds what

    def claim(
        self,
        owner: Owner,
        placement: Placement,
        charges: Mapping[str, Charge],
        *,
        since: float = 0.0,
        until: float | None = None,
        request: Request | None = None,
    ) -> Entry:
        """Take exactly these parts for a pod that is about to be bound; with `until`, only reserve them until then.
        Raises NoRoom if one does not fit and AlreadyHeld if the pod is bound to the node with another part; nothing
        has changed then.

        This replaces an earlier claim or reservation of the pod on the node. A claim for what is bound changes nothing.
        """
        held = self.entry(owner.uid, placement.node)
        if held is not None and held.state is State.BOUND:
            if (held.placement, held.charges) != (placement, charges):
                raise AlreadyHeld(f"pod {owner.pod or owner.uid} is bound to {placement.node} with another part")
            return held
        self._refuse_overcommit(placement.node, owner.uid, charges)
        state = State.CLAIMED if until is None else State.RESERVED
        return self._enter(Entry(owner, placement, dict(charges), state, since, until, request))

    def reassign(
        self, owner: Owner, placement: Placement, charges: Mapping[str, Charge], *, request: Request | None = None
    ) -> Entry:
        """Give a bound pod these parts of its node in place of those that it is charged for. It stays bound. Raises
        NoRoom, and changes nothing, if one does not fit beside what others hold, and NotPlaced for a pod that is not
        bound there."""
        held = self.entry(owner.uid, placement.node)
        if held is None or held.state is not State.BOUND:
            raise NotPlaced(f"pod {owner.pod or owner.uid} is not bound to {placement.node}")
        self._refuse_overcommit(placement.node, owner.uid, charges)
        return self._enter(Entry(owner, placement, dict(charges), State.BOUND, held.since, request=request))

    def adopt(
        self,
        owner: Owner,
        placement: Placement,
        charges: Mapping[str, Charge],
        *,
        since: float = 0.0,
        request: Request | None = None,
    ) -> Entry:
        """Enter what the cluster shows as a fact. Never refused: a card sold twice by others is reported, not hidden.

        The pod's claims on other nodes are dropped, since it can only be bound once.
        """
        for other in self.nodes_of(owner.uid) - {placement.node}:
            self._give_back(owner.uid, other)
        return self._enter(Entry(owner, placement, dict(charges), State.BOUND, since, request=request))

    def confirm(self, uid: str, node: str) -> None:
        """The Binding was accepted. A pod that has gone in the meantime stays gone."""
        entry = self.entry(uid, node)
        if entry is not None:
            self._count_unbound(entry, -1)
            self._nodes[node].entries[uid] = replace(entry, state=State.BOUND, until=None)
            self._reserved.discard((uid, node))
            self.changes += 1

    def release(self, uid: str, node: str | None = None) -> list[str]:
        """Give back what a pod holds, on one node or on all. Returns the nodes that changed."""
        nodes = sorted(self._nodes_of.get(uid, ())) if node is None else [node]
        return [name for name in nodes if self._give_back(uid, name)]

    def expire(self, now: float | None) -> list[Entry]:
        """Give back every reservation whose time has come, or all of them without a time, and return them."""
        reserved = (self._nodes[node].entries[uid] for uid, node in sorted(self._reserved))
        late = [entry for entry in reserved if now is None or (entry.until is not None and entry.until <= now)]
        for entry in late:
            self._give_back(entry.uid, entry.node)
        return late

    def restore(self, entries: Iterable[Entry]) -> None:
        """Enter what another ledger had, as it was."""
        for entry in entries:
            self._enter(entry)

    def recount(self, node: str) -> None:
        """Add up anew what is taken of a node's cards."""
        account = self._nodes.get(node)
        if account is not None:
            account.used = account.summed()
            account.version += 1
            self.changes += 1

    # -- questions

    def entry(self, uid: str, node: str) -> Entry | None:
        account = self._nodes.get(node)
        return account.entries.get(uid) if account else None

    def entries(self, node: str) -> list[Entry]:
        account = self._nodes.get(node)
        return list(account.entries.values()) if account else []

    def all(self) -> list[Entry]:
        return [entry for account in self._nodes.values() for entry in account.entries.values()]

    def is_summed_right(self, node: str) -> bool:
        """Whether what counts as taken of a node's cards is what its entries take."""
        account = self._nodes.get(node)
        return account is None or account.used == account.summed()

    def nodes_of(self, uid: str) -> frozenset[str]:
        return frozenset(self._nodes_of.get(uid, ()))

    def unbound_of(self, namespace: str) -> int:
        """How many reservations and claims the pods of a namespace have."""
        return self._unbound[namespace]

    def used(self, node: str) -> Mapping[str, Charge]:
        account = self._nodes.get(node)
        return dict(account.used) if account else {}

    def free(self, node: str, uuid: str) -> Charge:
        account = self._nodes.get(node)
        return account.free(uuid) if account else Charge()

    def version(self, node: str) -> int:
        account = self._nodes.get(node)
        return account.version if account else 0

    def oversold(self, node: str) -> list[str]:
        """The cards of a node of which more was sold than they have."""
        account = self._nodes.get(node)
        return sorted(account.oversold()) if account else []

    # -- inside

    def _enter(self, entry: Entry) -> Entry:
        self._count_unbound(self.entry(entry.uid, entry.node), -1)
        self._nodes.setdefault(entry.node, _NodeAccount()).put(entry)
        self._count_unbound(entry, 1)
        self.changes += 1
        self._reserved.discard((entry.uid, entry.node))
        if entry.state is State.RESERVED:
            self._reserved.add((entry.uid, entry.node))
        self._nodes_of.setdefault(entry.uid, set()).add(entry.node)
        return entry

    def _give_back(self, uid: str, node: str) -> bool:
        account = self._nodes.get(node)
        if account is None or (gone := account.take_out(uid)) is None:
            return False
        self._count_unbound(gone, -1)
        self.changes += 1
        self._reserved.discard((uid, node))
        self._nodes_of[uid].discard(node)
        if not self._nodes_of[uid]:
            del self._nodes_of[uid]
        self._tidy(node)
        return True

    def _count_unbound(self, entry: Entry | None, sign: int) -> None:
        if entry is None or entry.state is State.BOUND:
            return
        namespace = entry.owner.namespace
        self._unbound[namespace] += sign
        if not self._unbound[namespace]:
            del self._unbound[namespace]

    def _tidy(self, node: str) -> None:
        """Nothing is kept of a node that is gone when nobody holds anything there."""
        if self._nodes[node].cards is None and not self._nodes[node].entries:
            del self._nodes[node]

    def _refuse_overcommit(self, node: str, uid: str, charges: Mapping[str, Charge]) -> None:
        account = self._nodes.get(node, _NodeAccount())
        for uuid, charge in charges.items():
            if account.cards is None or uuid not in account.cards.by_uuid:
                raise NoRoom(f"the node has no card {uuid}")
            gpu, others = account.cards.by_uuid[uuid], account.held(uuid, without=uid)
            if relative := account.held_relative(gpu, without=uid):
                raise NoRoom(f"card {uuid} cannot be sold while {relative} is held: one is a MIG instance of the other")
            if why := conflict(gpu, others, charge):
                raise NoRoom(f"card {uuid} {why}")
