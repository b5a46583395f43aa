"""Ledger, Fleet and quota usage: three counts of the same entries, changed together and only here. What pods request of
CPU and memory is counted beside them, for all pods."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from aliquot import engine
from aliquot.control.state.events import Loaded
from aliquot.control.state.host_room import HostRoom
from aliquot.engine import Census, NodeState, Usage
from aliquot.lazy_log import LazyLogger
from aliquot.ledger import Entry, Ledger, Owner
from aliquot.model import Charge, ContainerRequest, Host, NodeGpus, Placement, Request, charges
from aliquot.model.host import NO_HOST

if TYPE_CHECKING:
    from aliquot.engine import Fleet

_log = LazyLogger()


class Totals:
    def __init__(self) -> None:
        self.ledger = Ledger()
        self._behind: dict[str, None] = {}
        """Nodes whose numbers in the Fleet lag behind the ledger, in order of change."""
        self.hosts = HostRoom()
        self._hosts_behind: dict[str, None] = {}
        """Nodes whose CPU and memory in the Fleet lag behind, in order of change."""
        self.usage = Usage()
        self.census = Census()
        self._cards: dict[str, NodeGpus] = {}
        self._oversold: dict[str, set[str]] = {}
        self.now = 0.0
        """When entries that come now began, by our own clock: it moves by events only."""
        self._loads: dict[str, Loaded] = {}
        self.in_trial = False
        """Whether the totals contain what a trial will roll back."""

    @cached_property
    def _fleet(self) -> "Fleet":
        """Made at its first use: whoever only counts what is held needs no arrays."""
        return engine.Fleet()

    @property
    def fleet(self) -> "Fleet":
        """The Fleet, brought up to date on access: a list of the cluster delivers a node's pods one by one."""
        for node in self._behind:
            if node in self._cards:
                is_new = node not in self._fleet.nodes
                self._fleet.put(self._cards[node], self.ledger.used(node), self.ledger.entries(node))
                if is_new and node in self._loads:
                    self._show_load(self._loads[node])
        for node in self._hosts_behind:
            self._fleet.set_host(node, self.host_left(node), self.hosts.offered_by(node))
        self._behind.clear()
        self._hosts_behind.clear()
        return self._fleet

    # -- cards of nodes

    @property
    def nodes(self) -> list[str]:
        return list(self._cards)

    def knows(self, node: str) -> bool:
        return node in self._cards

    def cards(self, node: str) -> NodeGpus:
        return self._cards.get(node) or NodeGpus(node, (), unit_mib=1)

    def states(self) -> dict[str, NodeState]:
        return {node: NodeState(cards, self.ledger.used(node)) for node, cards in self._cards.items()}

    def put_cards(self, cards: NodeGpus) -> bool:
        """Set a node's current cards. Returns whether they changed."""
        if self._cards.get(cards.node) == cards:
            return False
        self._cards[cards.node] = cards
        self.ledger.set_cards(cards)
        self.census.put(cards)
        for entry in self.ledger.entries(cards.node):
            self._count(entry)
        self._refresh(cards.node)
        return True

    def drop_node(self, node: str) -> None:
        self._cards.pop(node, None)
        self.ledger.drop_node(node)
        self.census.remove(node)
        self.hosts.withdraw(node)
        self.fleet.remove(node)

    # -- CPU and memory

    def offer_host(self, node: str, host: Host) -> bool:
        """Set a node's CPU and memory. Returns whether they changed."""
        changed = self.hosts.offer(node, host)
        if changed:
            self._hosts_behind[node] = None
        return changed

    def occupy_host(self, uid: str, node: str, host: Host) -> bool:
        """Count what a bound pod requests. Returns whether that changed."""
        before = self.hosts.node_of(uid)
        changed = self.hosts.occupy(uid, node, host)
        if changed:
            if before:
                self._hosts_behind[before] = None
            self._hosts_behind[node] = None
        return changed

    def vacate_host(self, uid: str) -> bool:
        """Stop counting what a pod requests. Returns whether it counted."""
        node = self.hosts.vacate(uid)
        if node:
            self._hosts_behind[node] = None
        return bool(node)

    def host_left(self, node: str, *, without: str = "") -> Host:
        """What a node has left, next to the pods bound to it and to claims of pods that are not shown as bound yet. The
        pod `without` does not count."""
        claimed = sum((entry.request.host for entry in self._unshown(node, without) if entry.request), NO_HOST)
        own = self.hosts.of(without, node) or NO_HOST
        return self.hosts.left(node, claimed - own)

    def pods_on(self, node: str, *, without: str = "") -> int:
        """How many pods a node has, counted likewise."""
        is_own = self.hosts.of(without, node) is not None
        return self.hosts.count(node) - is_own + sum(1 for _ in self._unshown(node, without))

    def _unshown(self, node: str, without: str) -> Iterator[Entry]:
        """The entries of pods that are not shown as bound yet."""
        uids = self.ledger.uids_on(node) - self.hosts.uids_on(node) - {without}
        return filter(None, (self.ledger.entry(uid, node) for uid in uids))

    # -- load

    @property
    def loads(self) -> Iterable[Loaded]:
        return self._loads.values()

    def set_load(self, load: Loaded) -> None:
        """How busy a node is. The node may not exist yet."""
        if load.cards:
            self._loads[load.node] = load
        else:
            self._loads.pop(load.node, None)
        self._show_load(load)

    def _show_load(self, load: Loaded) -> None:
        self._fleet.set_load(load.node, {uuid: (busy, load.at) for uuid, busy in load.cards.items()}, load.measured)

    # -- claims and holdings

    def claim(self, request: Request, placement: Placement, until: float | None = None) -> Entry:
        """Claim a placement; with `until`, reserve it. Raises NoRoom and AlreadyHeld."""
        request = request.on(self.cards(placement.node))
        taken = charges(placement, request)
        asked = _shape(request.dialect, request.containers, request.host)
        owner = _owner(request)
        return self._entered(self.ledger.claim(owner, placement, taken, since=self.now, until=until, request=asked))

    def reassign(self, request: Request, placement: Placement) -> Entry:
        """Raises NoRoom and NotPlaced."""
        request = request.on(self.cards(placement.node))
        taken = charges(placement, request)
        asked = _shape(request.dialect, request.containers, request.host)
        return self._entered(self.ledger.reassign(_owner(request), placement, taken, request=asked))

    def adopt(
        self, owner: Owner, placement: Placement, held: Mapping[str, Charge], request: Request | None = None
    ) -> None:
        """Enter what a bound pod holds. Releases the pod's claims on other nodes."""
        elsewhere = self.ledger.nodes_of(owner.uid) - {placement.node}
        asked = _shape(request.dialect, request.containers, request.host) if request else None
        self._entered(self.ledger.adopt(owner, placement, held, since=self.now, request=asked))
        for other in elsewhere:
            self._uncount(owner.uid, other)

    def release(self, uid: str, node: str | None = None) -> None:
        """Release on a node, or on all nodes."""
        for name in self.ledger.release(uid, node):
            self._uncount(uid, name)

    def put_back(self, entry: Entry) -> None:
        """Enter what was released in a trial."""
        self.ledger.restore([entry])
        self._entered(entry)

    def expire(self, now: float | None) -> list[Entry]:
        late = self.ledger.expire(now)
        for entry in late:
            self._uncount(entry.uid, entry.node)
        return late

    def restore(self, cards: Iterable[NodeGpus], entries: Iterable[Entry]) -> None:
        """Fill empty totals from a snapshot."""
        for had in cards:
            self.put_cards(had)
        self.ledger.restore(entries)
        for entry in self.ledger.all():
            self._count(entry)
        for node in self.nodes:
            self._refresh(node)

    # -- verification

    def wrong_counts(self, node: str) -> list[str]:
        """The counts of a node that differ from its entries: sums, fleet, quota."""
        entries, cards = self.ledger.entries(node), self.cards(node)
        is_right = {
            "sums": self.ledger.is_summed_right(node),
            "fleet": self.fleet.shows(cards, self.ledger.used(node)),
            "host": self.hosts.is_summed_right(node) and self.fleet.host(node) == self.host_left(node),
            "quota": all(self.usage.counts(own.uid, own.owner.namespace, cards, own.charges) for own in entries),
        }
        return [kind for kind, right in is_right.items() if not right]

    def recount(self, node: str) -> None:
        """Recompute a node's counts from its entries."""
        self.ledger.recount(node)
        self.hosts.recount(node)
        for entry in self.ledger.entries(node):
            self._count(entry)
        self._refresh(node)

    def recount_quotas(self) -> None:
        """Recompute the quota usage of every namespace."""
        self.usage = Usage()
        for entry in self.ledger.all():
            self._count(entry)

    # -- internals

    def _entered(self, entry: Entry) -> Entry:
        self._count(entry)
        self._refresh(entry.node)
        return entry

    def _count(self, entry: Entry) -> None:
        self.usage.add(entry.uid, entry.owner.namespace, self.cards(entry.node), entry.charges)

    def _uncount(self, uid: str, node: str) -> None:
        self.usage.remove(uid, node)
        self._refresh(node)

    def _refresh(self, node: str) -> None:
        self._behind[node] = self._hosts_behind[node] = None
        if not self.in_trial:
            self._report_oversold(node)

    def _report_oversold(self, node: str) -> None:
        """Log once per card. It happens only where another scheduler sold too, and lasts until a pod there ends."""
        oversold = set(self.ledger.oversold(node))
        for uuid in oversold - self._oversold.get(node, set()):
            _log.error("a card is over-committed", node=node, card=uuid)
        self._oversold[node] = oversold
        if not oversold:
            del self._oversold[node]


@lru_cache(maxsize=4096)
def _shape(dialect: str, containers: tuple[ContainerRequest, ...], host: Host) -> Request:
    """A request without its pod: thousands of pods share it."""
    return Request("", "", dialect, containers, host=host)


def _owner(request: Request) -> Owner:
    return Owner(request.uid, request.pod, request.priority)
