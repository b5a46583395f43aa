"""The ledger: placements by pod UID, sums per card, a version per node.

A pod normally has one entry. It has an entry on each of several nodes if the outcome of a Binding is unknown and the
pod was tried elsewhere. All of them stay charged until the cluster shows which one holds.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from enum import Enum

from aliquot.errors import AlreadyHeld, NoRoom, NotPlaced
from aliquot.model import Charge, Gpu, NodeGpus, Placement, Request, as_shown, numbered_as
from aliquot.model import charges as charges_of
from aliquot.model.selling import conflict, is_oversold, left_of


class State(Enum):
    """A reservation is kept for a pod for a while, and expires. A claim belongs to a write that is about to be sent, or
    whose outcome is unknown. A bound entry is what the cluster shows."""

    RESERVED = "reserved"
    CLAIMED = "claimed"
    BOUND = "bound"


@dataclass(frozen=True, slots=True)
class Owner:
    """A pod as the ledger knows it. Its UID is its identity; the rest serves quotas, preemption and log messages."""

    uid: str
    pod: str = ""
    priority: int = 0

    @property
    def namespace(self) -> str:
        return self.pod.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Entry:
    """What a pod holds on one node, `since` when. `until` is when a reservation expires; nothing else has one.

    `placement` keeps the uuids that its cards had when it was decided, with their current numbers. `charges` uses the
    names that the node has for them now; with the `request` they follow from the placement.
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
        """The same entry on the cards as the node shows them now. It gets their current numbers, which alone identify
        them if the inventory vanishes. With a request, its charges get their current names."""
        now = self._numbered_as(cards)
        if now.request is None or now.charges.keys() <= cards.by_uuid.keys():
            return now
        return replace(now, charges=charges_of(as_shown(now.placement, now.request, cards), now.request))

    def _numbered_as(self, cards: NodeGpus) -> "Entry":
        placement = numbered_as(self.placement, cards)
        return self if placement == self.placement else replace(self, placement=placement)


_NOTHING = Charge()


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
            before = self.used.get(uuid, _NOTHING)
            total = before + charge if sign > 0 else before - charge
            if total == _NOTHING:
                self.used.pop(uuid, None)
            else:
                self.used[uuid] = total

    def summed(self) -> dict[str, Charge]:
        """What the entries take of each card, recomputed."""
        sums: dict[str, Charge] = {}
        for entry in self.entries.values():
            for uuid, charge in entry.charges.items():
                sums[uuid] = sums.get(uuid, Charge()) + charge
        return {uuid: charge for uuid, charge in sums.items() if charge != Charge()}

    def held(self, uuid: str, *, without: str = "") -> Charge:
        """What is taken of a card, without what the pod `without` holds."""
        own = self.entries[without].charges.get(uuid, Charge()) if without in self.entries else Charge()
        return self.used.get(uuid, Charge()) - own

    def held_relative(self, gpu: Gpu, *, without: str) -> str:
        """The card that an instance was cut from, or an instance of a card, if somebody else holds it; else ""."""
        relatives = [other.uuid for other in self.cards.gpus if other.parent == gpu.uuid] if self.cards else []
        relatives += [gpu.parent] if gpu.parent else []
        return next((uuid for uuid in relatives if self.held(uuid, without=without) != Charge()), "")

    def free(self, uuid: str) -> Charge:
        """What is left of a card, never negative: an oversold card is full."""
        gpu = self.cards.by_uuid.get(uuid) if self.cards else None
        return left_of(gpu, self.used.get(uuid, Charge())) if gpu else Charge()

    def oversold(self) -> Iterator[str]:
        for uuid, used in self.used.items():
            gpu = self.cards.by_uuid.get(uuid) if self.cards else None
            if gpu is not None and is_oversold(gpu, used):
                yield uuid


class Ledger:
    """Changes only through claim, reassign, adopt, release and a change of a node's cards. Each change is all or
    nothing."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeAccount] = {}
        self._nodes_of: dict[str, set[str]] = {}
        self._reserved: set[tuple[str, str]] = set()
        """UID and node of every reservation."""
        self._unbound: Counter[str] = Counter()
        """How many reservations and claims there are, by namespace."""
        self.changes = 0
        """Grows with every change, so that a reader can tell whether anything happened since the last look."""

    # -- what nodes have

    def set_cards(self, cards: NodeGpus) -> None:
        """Sets a node's current cards. What pods hold stays held, even on a card that is gone or shrank. It moves to
        the new name of a renamed card."""
        account = self._account(cards.node)
        account.cards = cards
        for entry in list(account.entries.values()):
            if (now := entry.on(cards)) is not entry:
                account.put(now)
        account.version += 1
        self.changes += 1

    def drop_node(self, node: str) -> None:
        """Removes a node, which then sells nothing. Pods keep what they hold there until they are gone too: a Binding
        may be in flight, and the node may come back."""
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
        """Takes exactly these parts for a pod that is about to be bound; with `until`, only reserves them until then.
        Raises NoRoom if one does not fit and AlreadyHeld if the pod is bound to the node with another part; nothing
        has changed then.

        This replaces an earlier claim or reservation of the pod on the node. A claim for the part that is already bound
        changes nothing.
        """
        held = self.entry(owner.uid, placement.node)
        if held is not None and held.state is State.BOUND:
            if (held.placement, held.charges) != (placement, charges):
                raise AlreadyHeld(f"pod {owner.pod or owner.uid} is bound to {placement.node} with a different part")
            return held
        self._refuse_overcommit(placement.node, owner.uid, charges)
        state = State.CLAIMED if until is None else State.RESERVED
        return self._enter(Entry(owner, placement, dict(charges), state, since, until, request))

    def reassign(
        self, owner: Owner, placement: Placement, charges: Mapping[str, Charge], *, request: Request | None = None
    ) -> Entry:
        """Gives a bound pod these parts of its node in place of those that it is charged for. It stays bound. Raises
        NoRoom if a part does not fit, and NotPlaced if the pod is not bound there; then nothing has changed."""
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
        """Enters what the cluster shows as a fact. Never refused: a card that others sold twice is reported, not
        hidden. A pod that is already entered there keeps its time.

        Drops the pod's claims on other nodes, since it can be bound only once.
        """
        for other in self.nodes_of(owner.uid) - {placement.node}:
            self._give_back(owner.uid, other)
        held = self.entry(owner.uid, placement.node)
        began = held.since if held is not None else since
        return self._enter(Entry(owner, placement, dict(charges), State.BOUND, began, request=request))

    def confirm(self, uid: str, node: str) -> None:
        """Marks a claim as bound. Does nothing for a pod that has gone in the meantime."""
        entry = self.entry(uid, node)
        if entry is not None:
            self._count_unbound(entry, -1)
            self._nodes[node].entries[uid] = replace(entry, state=State.BOUND, until=None)
            self._reserved.discard((uid, node))
            self.changes += 1

    def release(self, uid: str, node: str | None = None) -> list[str]:
        """Releases what a pod holds, on one node or on all. Returns the nodes that changed."""
        nodes = sorted(self._nodes_of.get(uid, ())) if node is None else [node]
        return [name for name in nodes if self._give_back(uid, name)]

    def expire(self, now: float | None) -> list[Entry]:
        """Releases every reservation whose time has come, or all of them without a time, and returns them."""
        reserved = (self._nodes[node].entries[uid] for uid, node in sorted(self._reserved))
        late = [entry for entry in reserved if now is None or (entry.until is not None and entry.until <= now)]
        for entry in late:
            self._give_back(entry.uid, entry.node)
        return late

    def restore(self, entries: Iterable[Entry]) -> None:
        """Enters the entries of another ledger unchanged."""
        for entry in entries:
            self._enter(entry)

    def rewind(self, changes: int, versions: Mapping[str, int]) -> None:
        """Resets the change counters. The caller has already undone the changes."""
        self.changes = changes
        for node, version in versions.items():
            if node in self._nodes:
                self._nodes[node].version = version

    def recount(self, node: str) -> None:
        """Recomputes what is taken of a node's cards."""
        account = self._nodes.get(node)
        if account is not None:
            account.used = account.summed()
            account.version += 1
            self.changes += 1

    # -- questions

    def entry(self, uid: str, node: str) -> Entry | None:
        account = self._nodes.get(node)
        return account.entries.get(uid) if account else None

    def uids_on(self, node: str) -> Set[str]:
        """The pods that hold something on a node."""
        account = self._nodes.get(node)
        return account.entries.keys() if account else frozenset()

    def entries(self, node: str) -> list[Entry]:
        account = self._nodes.get(node)
        return list(account.entries.values()) if account else []

    def all(self) -> list[Entry]:
        return [entry for account in self._nodes.values() for entry in account.entries.values()]

    def is_summed_right(self, node: str) -> bool:
        """Whether the sums of a node's cards match its entries."""
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
        """The oversold cards of a node."""
        account = self._nodes.get(node)
        return sorted(account.oversold()) if account else []

    # -- inside

    def _enter(self, entry: Entry) -> Entry:
        self._count_unbound(self.entry(entry.uid, entry.node), -1)
        self._account(entry.node).put(entry)
        self._count_unbound(entry, 1)
        self.changes += 1
        self._reserved.discard((entry.uid, entry.node))
        if entry.state is State.RESERVED:
            self._reserved.add((entry.uid, entry.node))
        self._nodes_of.setdefault(entry.uid, set()).add(entry.node)
        return entry

    def _account(self, node: str) -> _NodeAccount:
        account = self._nodes.get(node)
        if account is None:
            account = self._nodes[node] = _NodeAccount()
        return account

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
        """Forgets a node that is gone once no pod holds anything there."""
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
