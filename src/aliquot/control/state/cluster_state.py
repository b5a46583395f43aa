"""The cluster state: observed nodes and pods, claims on them, and every decision based on these."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from heapq import nlargest
from itertools import islice

import numpy as np

from aliquot.control.state import claims
from aliquot.control.state.adoption import Adoption
from aliquot.control.state.events import (
    Claimed,
    Confirmed,
    Decided,
    Dropped,
    Expired,
    Marked,
    NodeLost,
    NodeSeen,
    PodForgotten,
    PodSeen,
    QuotasRead,
    Reassigned,
    Recorder,
    Recounted,
    Snapshot,
    search_of,
    verdict_of,
)
from aliquot.control.state.opening import Opening
from aliquot.control.state.search_budget import SearchBudget
from aliquot.control.state.totals import Totals
from aliquot.control.state.unhealthy_marks import Marks
from aliquot.control.state.unreadable_nodes import UnreadNodes
from aliquot.dialects import Demand, Dialect, Dialects, cards_of, demand_of, standard_dialects
from aliquot.engine import (
    Effort,
    Explanation,
    Fleet,
    Holder,
    Ints,
    Judgement,
    NameBlock,
    NodeFinding,
    NodeState,
    Preemption,
    QuotaCheck,
    QuotaLine,
    Quotas,
    check_policies,
    check_quota,
    complete,
    explain,
    explain_node,
    fits_without,
    judge,
    node_reason,
    on_each,
    preempt,
    quota_usage,
    within,
)
from aliquot.errors import BadConfig, BadDemand, BadRecord, NoRoom, Refused
from aliquot.ledger import Entry, State
from aliquot.model import Charge, Node, NodeGpus, Placement, Pod, Reason, Request, as_shown, charges
from aliquot.model.bounds import MAX_GPU_CONTAINERS
from aliquot.signals import Signal

_NODE_STEPS, _HOLDER_STEPS = 30, 3
"""Steps to read the holders of a node (`engine.effort`)."""


class ClusterState:
    """Every change goes through this class, one call after another, so that it can be recorded and replayed."""

    def __init__(self, dialects: Dialects | None = None, searches: SearchBudget | None = None) -> None:
        """Raises BadConfig for an unusable private policy, or an unknown default policy of a dialect."""
        self.dialects = dialects or standard_dialects()
        for dialect in self.dialects.values():
            _check_defaults(dialect)
        self.totals = Totals()
        self.ledger = self.totals.ledger
        self.quotas = Quotas()
        self.adoption = Adoption(self.totals, self.dialects)
        self.unplaced = self.adoption.unplaced
        self.recorder: Recorder | None = None
        """Receives every event that changes the cluster state, and every decision."""
        self.freed: Signal[Opening] = Signal()
        """Emitted where room may have become available."""
        self.searches = searches or SearchBudget()
        self.marks = Marks()
        self.unread = UnreadNodes()
        self._quota_text: str | None = None

    @property
    def fleet(self) -> Fleet:
        return self.totals.fleet

    # -- observed objects

    def see_node(self, node: Node) -> bool:
        """Take in a node. Returns whether its cards changed. Unreadable cards keep the last good ones."""
        before = self.marks.without_marks(self.cards(node.key))
        try:
            cards = cards_of(node, self.dialects)
        except BadRecord as error:
            self.unread.add(node.key, str(error))
            cards = before
        else:
            self.unread.remove(node.key)
        is_news = self.totals.put_cards(self.marks.on(cards))
        if self.recorder is not None and (is_news or cards != before):
            self.recorder.record(NodeSeen(node))
        if is_news:
            self.freed.emit(Opening(node.key, heard=True))
        return is_news

    def mark_unhealthy(self, node: str, indexes: frozenset[int]) -> None:
        """Mark cards of a node unhealthy, by index, whatever the node reports; the node may not exist yet. Nothing new
        is placed on marked cards. Running pods continue."""
        if not self.marks.put(node, indexes):
            return
        if self.totals.knows(node):
            self.totals.put_cards(self.marks.on(self.marks.without_marks(self.cards(node))))
            self.freed.emit(Opening(node))
        if self.recorder is not None:
            self.recorder.record(Marked(node, sorted(indexes)))

    def lose_node(self, node: str) -> None:
        self.unread.remove(node)
        self.marks.lose(node)
        self.totals.drop_node(node)
        if self.recorder is not None:
            self.recorder.record(NodeLost(node))

    def see_pod(self, pod: Pod) -> None:
        """Take in a pod. A bound pod holds its part until its containers have ended."""
        before, had, is_news = self.ledger.changes, self._entries_of(pod.metadata.uid), False
        if pod.ended:
            self.adoption.forget(pod.metadata.uid)
        elif pod.spec.node_name:
            self.adoption.see(pod)
        else:
            is_news = self.adoption.see_unbound(pod)
        if self.recorder is not None and (is_news or self.ledger.changes != before):
            self.recorder.record(PodSeen(pod))
        self._tell_openings(had, heard=True)

    def forget_pod(self, uid: str) -> None:
        before, had = self.ledger.changes, self._entries_of(uid)
        self.adoption.forget(uid)
        if self.recorder is not None and self.ledger.changes != before:
            self.recorder.record(PodForgotten(uid))
        self._tell_openings(had, heard=True)

    def expire(self, now: float | None) -> list[Entry]:
        """Release every expired reservation; without a time, all reservations."""
        late = self.totals.expire(now)
        if self.recorder is not None and late:
            self.recorder.record(Expired(now))
        self._tell_openings(late, heard=False)
        return late

    def read_quotas(self, text: str | None) -> None:
        """Take in the quotas; None if there are none. Unreadable text changes only `quotas.trouble`."""
        self.quotas.read(text)
        if not self.quotas.trouble and text != self._quota_text:
            self._quota_text = text
            if self.recorder is not None:
                self.recorder.record(QuotasRead(text))
            self.freed.emit(Opening())

    # -- questions

    def cards(self, node: str) -> NodeGpus:
        return self.totals.cards(node)

    def claimed_by(self, demand: Demand) -> list[str]:
        """The nodes with a claim of the pod that is still valid for its current demand."""
        uid = demand.request.uid
        entries = ((node, self.ledger.entry(uid, node)) for node in self.ledger.nodes_of(uid))
        return [node for node, entry in entries if entry is not None and self.suits(entry, demand)]

    def suits(self, claim: Entry, demand: Demand) -> bool:
        """Whether a claim is still valid and has the size that the pod asks for now: users may change that."""
        return claims.suits(claim, demand.request, self.totals)

    def reserved_for(self, demand: Demand, node: str) -> Placement | None:
        """The placement reserved for a pod on a node. Releases a reservation that is no longer valid."""
        reserved = self.ledger.entry(demand.request.uid, node)
        if reserved is None or reserved.state is not State.RESERVED:
            return None
        if self.suits(reserved, demand):
            return as_shown(reserved.placement, demand.request, self.cards(node))
        self.drop_claim(demand.request.uid, node)
        return None

    def demand_of(self, pod: Pod) -> Demand | None:
        """What a pod asks for; None without GPU. Raises BadDemand, also for an unknown policy."""
        demand = demand_of(pod, self.dialects)
        if demand is not None:
            if (count := len(demand.request.containers)) > MAX_GPU_CONTAINERS:
                raise BadDemand(f"{count} containers ask for GPUs; at most {MAX_GPU_CONTAINERS} of one pod are placed")
            constraints, ours = demand.request.constraints, _our_prefix(self.dialects)
            check_policies(
                constraints.gpu_policy,
                constraints.node_policy,
                gpu_field=f"{ours}/gpu-policy",
                node_field=f"{ours}/node-policy",
            )
        return demand

    def judge(
        self, demand: Demand, among: Ints | Collection[str] | None = None, *, effort: Effort | None = None
    ) -> Judgement:
        """Judge every node for a demand, including its namespace's quota. Only the nodes, or columns, in `among` are
        searched. Without `effort`, the search budget of the pod applies."""
        request, policies = demand.request, _policies(demand)
        columns = self._columns(among) if request.needs_search else None

        def decide_with(effort: Effort) -> Judgement:
            quota = self._quota(request)
            return judge(self.fleet, request, *policies, quota=quota, effort=effort, among=columns)

        if effort is not None:
            judgement = decide_with(effort)
        else:
            judgement = self.searches.ask(request, decide_with, lambda made: made.fits_among(columns), places=True)
        if self.recorder is not None:
            self.recorder.record(Decided(request, *policies, verdict_of(judgement), search_of(judgement)))
        return judgement

    def _columns(self, among: Ints | Collection[str] | None) -> Ints | None:
        if among is None or isinstance(among, np.ndarray):
            return among
        return self.fleet.table.find(NameBlock.of(among))

    def fit(self, demand: Demand, node: str) -> Placement:
        """The part that a demand gets on a node. Raises NoRoom, in the words of its dialect."""
        judgement = self.judge(demand, [node])
        placement = judgement.placement(node)
        if placement is None:
            reason = judgement.refusal(node)
            assert reason is not None, "a node without a placement has a reason"
            raise NoRoom(demand.dialect.words_for(reason, self.cards(node), demand.request))
        return placement

    def place_on(
        self, state: NodeState, demands: Iterable[Demand], budget: Effort
    ) -> Iterator[tuple[Placement | None, NodeState]]:
        """Place demands one after another on a hypothetical node. Yields each placement and the node after it. Ignores
        quotas. All searches use the budget."""
        fleet = Fleet()
        for demand in demands:
            fleet.put(state.cards, state.used)
            question = partial(_place, fleet, demand, state.cards.node)
            placement = self.searches.ask(demand.request, partial(within, budget, question))
            if placement is not None:
                state = state.plus(charges(placement, demand.request))
            yield placement, state

    def refusal(
        self,
        state: NodeState,
        demand: Demand,
        others: Iterable[Mapping[str, Charge]] = (),
        budget: Effort | None = None,
    ) -> Reason | None:
        """Why a demand does not fit on a hypothetical node; None if it does. `others` are further charges of its
        namespace that the cluster state does not have. With a budget, searches use it."""
        request, quota = demand.request, self._quota(demand.request).beside(state.cards, others)
        ask: Callable[[Effort], Reason | None] = partial(node_reason, state, request, quota)
        asked = ask if budget is None else partial(within, budget, ask)
        return self.searches.ask(request, asked, lambda reason: reason is None, places=True)

    @contextmanager
    def without(self, pod: Pod) -> Iterator[None]:
        """Answer questions inside this context as if the pod did not exist. Nothing is recorded, so no event may happen
        meanwhile."""
        recorder, self.recorder = self.recorder, None
        try:
            with self.totals.without(pod.metadata.uid):
                yield
        finally:
            self.recorder = recorder

    def explain(self, demand: Demand) -> Explanation:
        """Explain why a demand fits or does not, on every node, and what would make it fit."""
        states = self.totals.states()
        holders = {node: self.holders(node) for node in states}
        request, quota = demand.request, self._quota(demand.request)
        ask = partial(explain, states, request, quota, holders)
        return self.searches.ask(request, ask, lambda told: told.fits, tries=True)

    def explain_node(self, demand: Demand, node: str) -> NodeFinding:
        """Explain a single node, card by card."""
        request, quota = demand.request, self._quota(demand.request)
        return self.searches.ask(
            request, partial(explain_node, self._state(node), request, quota), lambda found: found.fits
        )

    def preempt(self, demand: Demand) -> Preemption | None:
        """The cheapest pods of lower priority whose eviction makes a demand fit; None if there are none."""
        quota = self._quota(demand.request)
        states = {node: quota.permits(state) for node, state in self.totals.states().items()}
        holders = {node: self.holders(node) for node in states}
        return self.searches.ask(demand.request, partial(preempt, states, demand.request, holders), tries=True)

    def complete_victims(
        self, demand: Demand, proposed: Mapping[str, Sequence[str]], can_end: Callable[[str], bool]
    ) -> dict[str, list[str]]:
        """Complete the proposed victims of each node, by UID, with further pods of lower priority that `can_end`, until
        the demand fits there. Leaves out nodes where that is impossible, and nodes beyond the effort of a decision."""
        request, quota = demand.request, self._quota(demand.request)

        def complete_on(node: str, effort: Effort) -> list[str] | None:
            entries, ending = self.ledger.entries(node), proposed[node]
            if not effort.take(_NODE_STEPS + _HOLDER_STEPS * len(entries)):
                return None
            holders = [holder for holder in _holders(entries) if holder.uid in ending or can_end(holder.uid)]
            return complete(quota.permits(self._state(node)), request, ending, holders, effort)

        return self.searches.ask(request, partial(on_each, [*proposed], complete_on), tries=True)

    def emptied_for(self, demand: Demand, victims: Mapping[str, Collection[str]]) -> list[str]:
        """The nodes on which a demand fits after these pods have ended."""
        request, quota = demand.request, self._quota(demand.request)

        def is_emptied(node: str, effort: Effort) -> bool | None:
            ending = [holder for holder in self.holders(node) if holder.uid in victims[node]]
            return fits_without(quota.permits(self._state(node)), request, ending, effort) or None

        return [*self.searches.ask(request, partial(on_each, [*victims], is_emptied))]

    def _state(self, node: str) -> NodeState:
        return NodeState(self.cards(node), self.ledger.used(node))

    def holders(self, node: str) -> list[Holder]:
        return _holders(self.ledger.entries(node))

    def quota_lines(self, most: int) -> Iterator[tuple[str, QuotaLine]]:
        """Yield at most `most` quota lines with their namespaces, the largest users first."""
        usage = self.totals.usage
        namespaces = nlargest(most, self.quotas.entries, key=usage.cards_of)
        return islice(((name, line) for name in namespaces for line in quota_usage(self.quotas, usage, name)), most)

    def _quota(self, request: Request) -> QuotaCheck:
        return check_quota(self.quotas, self.totals.usage, self.totals.census, request)

    # -- claims

    def claim(self, request: Request, placement: Placement) -> Entry:
        """Claim exactly these parts for a write that is about to be sent. Raises NoRoom, and AlreadyHeld if the pod is
        bound there with another part."""
        return self._take(request, placement)

    def reserve(self, request: Request, placement: Placement, until: float) -> Entry:
        """Reserve exactly these parts for a pod until then. Raises as `claim` does."""
        return self._take(request, placement, until)

    def _take(self, request: Request, placement: Placement, until: float | None = None) -> Entry:
        try:
            self._refuse_over_quota(request, placement)
            entry = self.totals.claim(request, placement, until)
        except Refused as refused:
            self._record_claim(request, placement, until, str(refused))
            raise
        self._record_claim(request, placement, until)
        return entry

    def reassign(self, request: Request, placement: Placement) -> Entry:
        """Move a bound pod with unnamed cards from its charged parts to these, which will be written to the pod. Raises
        NoRoom."""
        had = self._entries_of(request.uid)
        self._refuse_over_quota(request, placement)
        entry = self.totals.reassign(request, placement)
        if self.recorder is not None:
            self.recorder.record(Reassigned(request, placement))
        self._tell_openings(had, heard=False)
        return entry

    def _refuse_over_quota(self, request: Request, placement: Placement) -> None:
        if why := self._quota(request).exceeded(self.cards(placement.node), charges(placement, request)):
            raise NoRoom(f"{Reason.OVER_QUOTA.value}: {why}")

    def _record_claim(self, request: Request, placement: Placement, until: float | None, refused: str = "") -> None:
        if self.recorder is not None:
            self.recorder.record(Claimed(request, placement, until, refused))

    def confirm(self, uid: str, node: str) -> None:
        before = self.ledger.changes
        self.ledger.confirm(uid, node)
        self.adoption.trust(uid)
        if self.recorder is not None and self.ledger.changes != before:
            self.recorder.record(Confirmed(uid, node))

    def is_settled(self, uid: str, node: str) -> bool:
        """Whether the cluster has shown the outcome of a claim: bound, gone, or bound elsewhere."""
        entry = self.ledger.entry(uid, node)
        return entry is None or entry.state is State.BOUND

    def drop_claim(self, uid: str, node: str) -> None:
        """Release a claim or reservation. A pod that the cluster shows as bound keeps its part."""
        if not self.is_settled(uid, node):
            self.release(uid, node)

    def release(self, uid: str, node: str) -> None:
        """Release what a pod holds on a node, bound or not."""
        before, had = self.ledger.changes, self._entries_of(uid)
        self.totals.release(uid, node)
        if self.recorder is not None and self.ledger.changes != before:
            self.recorder.record(Dropped(uid, node))
        self._tell_openings(had, heard=True)

    def _entries_of(self, uid: str) -> list[Entry]:
        entries = (self.ledger.entry(uid, node) for node in self.ledger.nodes_of(uid))
        return [entry for entry in entries if entry is not None]

    def _tell_openings(self, had: Iterable[Entry], *, heard: bool) -> None:
        """Emit openings for released charges, on their nodes and in the quotas of their namespaces."""
        for entry in had:
            now = self.ledger.entry(entry.uid, entry.node)
            if now is None or now.charges != entry.charges:
                namespace = entry.owner.namespace
                self.freed.emit(Opening(entry.node, namespace if namespace in self.quotas.entries else "", heard))

    # -- snapshots

    def snapshot(self) -> Snapshot:
        """Everything that this cluster state knows."""
        cards = [self.marks.without_marks(self.cards(node)) for node in self.totals.nodes]
        provisional = frozenset(self.adoption.provisional)
        return Snapshot(cards, self.ledger.all(), provisional, self._quota_text, dict(self.marks.all))

    def restore(self, snapshot: Snapshot) -> None:
        """Fill an empty cluster state from a snapshot."""
        self.read_quotas(snapshot.quotas)
        for node, indexes in snapshot.marks.items():
            self.marks.put(node, indexes)
        self.totals.restore([self.marks.on(cards) for cards in snapshot.cards], snapshot.entries)
        self.adoption.provisional |= snapshot.provisional

    def recount(self, node: str = "") -> None:
        """Recompute the counts of a node; without a node, the quota usage of namespaces."""
        if node:
            self.totals.recount(node)
        else:
            self.totals.recount_quotas()
        if self.recorder is not None:
            self.recorder.record(Recounted(node))


def _holders(entries: Iterable[Entry]) -> list[Holder]:
    return [Holder(entry.uid, entry.owner.pod, entry.owner.priority, entry.charges) for entry in entries]


def _policies(demand: Demand) -> tuple[str, str]:
    """GPU policy and node policy: the pod's constraint, else the dialect's default."""
    constraints, dialect = demand.request.constraints, demand.dialect
    return constraints.gpu_policy or dialect.gpu_policy, constraints.node_policy or dialect.node_policy


def _place(fleet: Fleet, demand: Demand, node: str, effort: Effort) -> Placement | None:
    return judge(fleet, demand.request, *_policies(demand), effort=effort).placement(node)


def _our_prefix(dialects: Dialects) -> str:
    ours = dialects.get("aliquot")
    return ours.prefix if ours else "aliquot.io"


def _check_defaults(dialect: Dialect) -> None:
    check_policies(
        dialect.gpu_policy,
        dialect.node_policy,
        gpu_field=f"dialect {dialect.name}, gpu_policy",
        node_field=f"dialect {dialect.name}, node_policy",
        error=BadConfig,
    )
