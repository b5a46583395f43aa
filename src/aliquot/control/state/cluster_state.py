"""The cluster state: observed nodes and pods, claims on them, and every decision based on these."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import structs

from aliquot import engine
from aliquot.control.state import claims
from aliquot.control.state.adoption import Adoption
from aliquot.control.state.bounded_map import BoundedMap
from aliquot.control.state.events import (
    NO_EFFECTS,
    Claimed,
    Confirmed,
    Decided,
    Dropped,
    Effects,
    Expired,
    HostTaken,
    Loaded,
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
    StateEvent,
    TimePassed,
    Verdict,
    search_of,
    verdict_of,
)
from aliquot.control.state.opening import Opening
from aliquot.control.state.search_budget import SearchBudget
from aliquot.control.state.seen_shapes import SeenShapes
from aliquot.control.state.totals import Totals
from aliquot.control.state.trial import Trial, open_trial
from aliquot.control.state.unhealthy_marks import Marks
from aliquot.control.state.unreadable_nodes import UnreadNodes
from aliquot.dialects import Demand, Dialect, Dialects, cards_of, demand_of, standard_dialects
from aliquot.engine import Holder, NodeState, Quotas, on_each, within
from aliquot.errors import BadConfig, BadDemand, BadRecord, NoRoom, Refused
from aliquot.ledger import Entry, State
from aliquot.model import Node, NodeGpus, Placement, Pod, Reason, Request, as_shown, charges
from aliquot.model.bounds import MAX_DECISIONS, MAX_GPU_CONTAINERS
from aliquot.signals import Signal

if TYPE_CHECKING:
    from aliquot.engine import (
        Effort,
        Explanation,
        Fleet,
        Ints,
        Judgement,
        NodeFinding,
        PolicySettings,
        Preemption,
        QuotaCheck,
        QuotaLine,
    )
    from aliquot.engine.workload import Workload

_NODE_STEPS, _HOLDER_STEPS = 30, 3
"""Steps to read the holders of a node (`engine.effort`)."""


class ClusterState:
    """Changes only through `apply`, one event after another, so that it can be recorded and replayed."""

    def __init__(
        self, dialects: Dialects | None = None, searches: SearchBudget | None = None, *, decides: bool = True
    ) -> None:
        """One that does not decide knows only who holds what: it loads no policies, and counts no shapes for them,
        which is a quarter of the work of seeing a pod. Raises BadConfig for an unusable private policy, or an unknown
        default policy of a dialect."""
        self.dialects = dialects or standard_dialects()
        for dialect in self.dialects.values() if decides else ():
            _check_defaults(dialect)
        self.totals = Totals()
        self.ledger = self.totals.ledger
        self.quotas = Quotas()
        self._decides = decides
        self.shapes = SeenShapes(self.dialects)
        self.adoption = Adoption(self.totals, self.dialects)
        self.unplaced = self.adoption.unplaced
        self.recorder: Recorder | None = None
        """Receives every event that changes the cluster state, and every decision."""
        self.decisions = BoundedMap[Verdict](MAX_DECISIONS, MAX_DECISIONS)
        """The last decision about each pod, while there is a recorder: otherwise it would take time for nothing."""
        self.freed: Signal[Opening] = Signal()
        """Emitted where room may have become available."""
        self.searches = searches or SearchBudget()
        self.marks = Marks()
        self.unread = UnreadNodes()
        self._quota_text: str | None = None
        self._unrecorded: dict[str, Loaded] = {}
        """Load that no decision depended on yet, by node."""

    @property
    def fleet(self) -> "Fleet":
        return self.totals.fleet

    # -- events

    def apply(self, event: StateEvent) -> Effects:
        """Apply an event, record it if it changed anything, and announce the room that it freed. An event that raises
        has changed nothing: Claimed raises NoRoom, and AlreadyHeld if the pod is bound there with another part;
        Reassigned raises NoRoom and NotPlaced."""
        assert not self.totals.in_trial, "an event would be rolled back together with the trial"
        try:
            effects = self._apply(event)
        except Refused as refused:
            if self.recorder is not None and isinstance(event, Claimed):
                self.recorder.record(structs.replace(event, refused=str(refused)))
            raise
        if self.recorder is not None and effects.changed:
            self.recorder.record(effects.record or event)
        for opening in effects.freed:
            self.freed.emit(opening)
        return effects

    def _apply(self, event: StateEvent) -> Effects:
        match event:
            case PodSeen(pod):
                return self._see_pod(pod)
            case HostTaken(uid, name, host):
                return Effects(changed=self.totals.occupy_host(uid, name, host))
            case PodForgotten(uid):
                self.decisions.forget(uid)
                is_counted = self.shapes.forget(uid)
                effects = self._free(uid)
                return Effects(changed=True) if is_counted and not effects.changed else effects
            case NodeSeen(node):
                return self._see_node(node)
            case NodeLost(name):
                return self._lose_node(name)
            case TimePassed(now):
                self.totals.now = now
                return Effects(changed=True)
            case Loaded() as load:
                self.totals.set_load(load)
                if self.recorder is not None:
                    self._unrecorded[load.node] = load
                return NO_EFFECTS
            case Claimed(request, placement, until):
                self._refuse_over_quota(request, placement)
                self.totals.claim(request, placement, until)
                return Effects(changed=True)
            case Reassigned(request, placement):
                return self._reassign(request, placement)
            case Confirmed(uid, name):
                return self._entries_after(uid, partial(self._confirm, uid, name))
            case Dropped(uid, name):
                return self._entries_after(uid, partial(self._drop, uid, name))
            case Expired(now):
                return self._expire(now)
            case QuotasRead(text):
                return self._read_quotas(text)
            case Marked(name, indexes):
                return self._mark(name, frozenset(indexes))
            case Recounted(name):
                if name:
                    self.totals.recount(name)
                else:
                    self.totals.recount_quotas()
                return Effects(changed=True)

    def _see_node(self, node: Node) -> Effects:
        """Unreadable cards keep the last good ones."""
        before = self.marks.without_marks(self.cards(node.key))
        try:
            cards = cards_of(node, self.dialects)
        except BadRecord as error:
            self.unread.add(node.key, str(error))
            cards = before
        else:
            self.unread.remove(node.key)
        host_changed = self.totals.offer_host(node.key, node.host)
        if self.totals.put_cards(self.marks.on(cards)):
            return Effects(changed=True, freed=(Opening(node.key, heard=True),))
        return Effects(changed=host_changed or cards != before)

    def _lose_node(self, node: str) -> Effects:
        self.unread.remove(node)
        self.marks.lose(node)
        self.totals.drop_node(node)
        return Effects(changed=True)

    def _see_pod(self, pod: Pod) -> Effects:
        """A bound pod holds its part until its containers have ended."""
        is_new = self._decides and self.shapes.see(pod)
        effects = self._free(pod.metadata.uid) if pod.ended else self._see_living(pod)
        if is_new or (effects.record is not None and pod.metadata.uid in self.shapes.uids):
            return replace(effects, changed=True, record=None)  # a smaller event would say nothing about the shape
        return effects

    def _see_living(self, pod: Pod) -> Effects:
        uid, node = pod.metadata.uid, pod.spec.node_name
        if not node:
            return Effects(changed=True) if self.adoption.see_unbound(pod) else NO_EFFECTS
        host = pod.host
        host_changed = self.totals.occupy_host(uid, node, host)
        effects = self._entries_after(uid, partial(self.adoption.see, pod))
        if effects.changed or not host_changed:
            return effects
        return Effects(changed=True, record=HostTaken(uid, node, host))

    def _free(self, uid: str) -> Effects:
        """Release what a pod that has ended holds and requests."""
        host_changed = self.totals.vacate_host(uid)
        effects = self._entries_after(uid, partial(self.adoption.forget, uid))
        if effects.changed or not host_changed:
            return effects
        return Effects(changed=True, record=PodForgotten(uid))

    def _confirm(self, uid: str, node: str) -> None:
        self.ledger.confirm(uid, node)
        self.adoption.trust(uid)

    def _drop(self, uid: str, node: str) -> None:
        self.totals.release(uid, node)
        self.adoption.observed.settle(node)

    def _reassign(self, request: Request, placement: Placement) -> Effects:
        had = self._entries_of(request.uid)
        self._refuse_over_quota(request, placement)
        self.totals.reassign(request, placement)
        return Effects(changed=True, freed=self._openings(had, heard=False))

    def _expire(self, now: float | None) -> Effects:
        expired = self.totals.expire(now)
        for node in sorted({entry.node for entry in expired}):
            self.adoption.observed.settle(node)
        uids = tuple(entry.uid for entry in expired)
        return Effects(changed=bool(expired), freed=self._openings(expired, heard=False), expired=uids)

    def _read_quotas(self, text: str | None) -> Effects:
        """Unreadable text changes only `quotas.trouble`."""
        self.quotas.read(text)
        if self.quotas.trouble or text == self._quota_text:
            return NO_EFFECTS
        self._quota_text = text
        return Effects(changed=True, freed=(Opening(),))

    def _mark(self, node: str, indexes: frozenset[int]) -> Effects:
        """The node may not exist yet."""
        if not self.marks.put(node, indexes):
            return NO_EFFECTS
        if not self.totals.knows(node):
            return Effects(changed=True)
        self.totals.put_cards(self.marks.on(self.marks.without_marks(self.cards(node))))
        return Effects(changed=True, freed=(Opening(node),))

    def _entries_after(self, uid: str, change: Callable[[], None]) -> Effects:
        """The effects of a change of what a pod holds."""
        before, had = self.ledger.changes, self._entries_of(uid)
        change()
        if self.ledger.changes == before:
            return NO_EFFECTS
        return Effects(changed=True, freed=self._openings(had, heard=True))

    def _entries_of(self, uid: str) -> list[Entry]:
        entries = (self.ledger.entry(uid, node) for node in self.ledger.nodes_of(uid))
        return [entry for entry in entries if entry is not None]

    def _openings(self, had: Iterable[Entry], *, heard: bool) -> tuple[Opening, ...]:
        """The openings where charges were released, on their nodes and in the quotas of their namespaces."""
        return tuple(
            Opening(entry.node, namespace if (namespace := entry.owner.namespace) in self.quotas.entries else "", heard)
            for entry in had
            if (now := self.ledger.entry(entry.uid, entry.node)) is None or now.charges != entry.charges
        )

    def _refuse_over_quota(self, request: Request, placement: Placement) -> None:
        if why := self.quota_for(request).exceeded(self.cards(placement.node), charges(placement, request)):
            raise NoRoom(f"{Reason.OVER_QUOTA.value}: {why}")

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

    def demand_of(self, pod: Pod) -> Demand | None:
        """What a pod asks for; None without GPU. Raises BadDemand, also for an unknown policy."""
        demand = demand_of(pod, self.dialects)
        if demand is not None:
            if (count := len(demand.request.containers)) > MAX_GPU_CONTAINERS:
                raise BadDemand(f"{count} containers ask for GPUs; Aliquot places at most {MAX_GPU_CONTAINERS} per pod")
            constraints, ours = demand.request.constraints, _our_prefix(self.dialects)
            if constraints.gpu_policy or constraints.node_policy:
                engine.check_policies(
                    constraints.gpu_policy,
                    constraints.node_policy,
                    gpu_field=f"{ours}/gpu-policy",
                    node_field=f"{ours}/node-policy",
                )
        return demand

    def judge(
        self, demand: Demand, among: "Ints | Collection[str] | None" = None, *, effort: "Effort | None" = None
    ) -> "Judgement":
        """Judge every node for a demand, including its namespace's quota. Only the nodes, or columns, in `among` are
        searched. Without `effort`, the search budget of the pod applies."""
        request, policies = demand.request, demand.policies
        columns = self._columns(among) if request.needs_search else None

        def decide_with(effort: "Effort") -> "Judgement":
            quota = self.quota_for(request)
            return engine.judge(
                self.fleet, request, *policies, self._settings, quota=quota, effort=effort, among=columns
            )

        if effort is not None:
            judgement = decide_with(effort)
        else:
            judgement = self.searches.ask(request, decide_with, lambda made: made.fits_among(columns), places=True)
        if self.recorder is not None and not self.totals.in_trial:
            if engine.uses_load(*policies):
                self._record_loads(self.recorder)
            verdict = verdict_of(judgement)
            self.recorder.record(Decided(request, *policies, verdict, search_of(judgement)))
            self.decisions.put(request.uid, request.namespace, verdict)
        return judgement

    def _record_loads(self, recorder: Recorder) -> None:
        for load in self._unrecorded.values():
            recorder.record(load)
        self._unrecorded.clear()

    @property
    def expected(self) -> "Workload":
        """The pods to expect, like those that came."""
        return self._settings.expected

    @property
    def _settings(self) -> "PolicySettings":
        return engine.PolicySettings(now=self.totals.now, seen=self.shapes.counts)

    def _columns(self, among: "Ints | Collection[str] | None") -> "Ints | None":
        import numpy as np  # only decisions need it

        if among is None or isinstance(among, np.ndarray):
            return among
        return self.fleet.table.find(engine.NameBlock.of(among))

    def fit(self, demand: Demand, node: str) -> Placement:
        """The part that a demand gets on a node. Raises NoRoom, in the words of its dialect."""
        judgement = self.judge(demand, [node])
        placement = judgement.placement(node)
        if placement is None:
            reason = judgement.refusal(node)
            assert reason is not None, "a node without a placement has a reason"
            raise NoRoom(demand.dialect.words_for(reason, self.cards(node), demand.request))
        return placement

    def find(self, demand: Demand, node: str, budget: "Effort") -> Placement | None:
        """The part that a demand would get on a node if there were no quotas. A search uses the budget."""
        request, columns = demand.request, self._columns([node]) if demand.request.needs_search else None

        def place_with(effort: "Effort") -> Placement | None:
            judged = engine.judge(self.fleet, request, *demand.policies, self._settings, effort=effort, among=columns)
            return judged.placement(node)

        return self.searches.ask(request, partial(within, budget, place_with))

    def refusal(self, demand: Demand, node: str, budget: "Effort | None" = None) -> Reason | None:
        """Why a demand does not fit on a node; None if it does. Looks at this node alone: judging all nodes takes far
        longer. With a budget, a search uses it."""
        request, quota = demand.request, self.quota_for(demand.request)
        ask: Callable[[Effort], Reason | None] = partial(engine.node_reason, self.state(node), request, quota)
        asked = ask if budget is None else partial(within, budget, ask)
        return self.searches.ask(request, asked, lambda reason: reason is None, places=True)

    @contextmanager
    def trial(self, *, without: str = "") -> Iterator[Trial]:
        """Try placements, and answer questions as if they were made. All of it is rolled back at the end, nothing is
        recorded, and no event may be applied meanwhile. `without` is the UID of a pod that counts as gone."""
        with open_trial(self.totals) as trial:
            trial.remove(without)
            yield trial

    def explain(self, demand: Demand, closed: Collection[str] = ()) -> "Explanation":
        """Explain why a demand fits or does not, on every node, and what would make it fit on nodes that are not
        `closed` to its pod for other reasons."""
        return self.searches.ask(demand.request, self.explaining(demand, closed), lambda told: told.fits, tries=True)

    def explaining(self, demand: Demand, closed: Collection[str] = ()) -> "Callable[[Effort], Explanation]":
        """The same as a function that may run on another thread while the cluster state changes: it has taken all that
        it needs. In a large cluster it takes most of a second."""
        states = self.totals.states()
        holders = {node: self.holders(node) for node in states}
        quota = self.quota_for(demand.request)
        return partial(engine.explain, states, demand.request, quota, holders, closed=closed)

    def explain_node(self, demand: Demand, node: str, effort: "Effort | None" = None) -> "NodeFinding":
        """Explain a single node, card by card. With an effort, that takes nothing of the time that the pod has for its
        search."""
        request, quota = demand.request, self.quota_for(demand.request)
        question = partial(engine.explain_node, self.state(node), request, quota)
        return self.searches.ask(request, question, lambda found: found.fits) if effort is None else question(effort)

    def preempt(self, demand: Demand) -> "Preemption | None":
        """The cheapest pods of lower priority whose eviction makes a demand fit; None if there are none."""
        quota = self.quota_for(demand.request)
        states = {node: quota.permits(state) for node, state in self.totals.states().items()}
        holders = {node: self.holders(node) for node in states}
        return self.searches.ask(demand.request, partial(engine.preempt, states, demand.request, holders), tries=True)

    def complete_victims(
        self, demand: Demand, proposed: Mapping[str, Sequence[str]], can_end: Callable[[str], bool]
    ) -> dict[str, list[str]]:
        """Complete the proposed victims of each node, by UID, with further pods of lower priority that `can_end`, until
        the demand fits there. Leaves out nodes where that is impossible, and nodes beyond the effort of a decision."""
        request, quota = demand.request, self.quota_for(demand.request)

        def complete_on(node: str, effort: "Effort") -> list[str] | None:
            entries, ending = self.ledger.entries(node), proposed[node]
            if not effort.take(_NODE_STEPS + _HOLDER_STEPS * len(entries)):
                return None
            holders = [holder for holder in _holders(entries) if holder.uid in ending or can_end(holder.uid)]
            return engine.complete(quota.permits(self.state(node)), request, ending, holders, effort)

        return self.searches.ask(request, partial(on_each, [*proposed], complete_on), tries=True)

    def emptied_for(self, demand: Demand, victims: Mapping[str, Collection[str]]) -> list[str]:
        """The nodes on which a demand fits after these pods have ended."""
        request, quota = demand.request, self.quota_for(demand.request)

        def is_emptied(node: str, effort: "Effort") -> bool | None:
            ending = [holder for holder in self.holders(node) if holder.uid in victims[node]]
            return engine.fits_without(quota.permits(self.state(node)), request, ending, effort) or None

        return [*self.searches.ask(request, partial(on_each, [*victims], is_emptied))]

    def state(self, node: str) -> NodeState:
        return NodeState(self.cards(node), self.ledger.used(node))

    def holders(self, node: str) -> list[Holder]:
        return _holders(self.ledger.entries(node))

    def quota_lines(self, most: int) -> "Iterator[tuple[str, QuotaLine]]":
        """Yield at most `most` quota lines with their namespaces, the largest users first."""
        usage = self.totals.usage
        namespaces = nlargest(most, self.quotas.entries, key=usage.cards_of)
        return islice(
            ((name, line) for name in namespaces for line in engine.quota_usage(self.quotas, usage, name)), most
        )

    def quota_for(self, request: Request) -> "QuotaCheck":
        """What the quota of its namespace leaves to a request."""
        return engine.check_quota(self.quotas, self.totals.usage, self.totals.census, request)

    # -- claims

    def reserved_for(self, demand: Demand, node: str) -> Placement | None:
        """The placement reserved for a pod on a node. Releases a reservation that is no longer valid."""
        reserved = self.ledger.entry(demand.request.uid, node)
        if reserved is None or reserved.state is not State.RESERVED:
            return None
        if self.suits(reserved, demand):
            return as_shown(reserved.placement, demand.request, self.cards(node))
        self.drop_claim(demand.request.uid, node)
        return None

    def is_settled(self, uid: str, node: str) -> bool:
        """Whether the cluster has shown the outcome of a claim: bound, gone, or bound elsewhere."""
        entry = self.ledger.entry(uid, node)
        return entry is None or entry.state is State.BOUND

    def drop_claim(self, uid: str, node: str) -> None:
        """Release a claim or reservation. A pod that the cluster shows as bound keeps its part."""
        if not self.is_settled(uid, node):
            self.apply(Dropped(uid, node))

    # -- snapshots

    def snapshot(self) -> Snapshot:
        """Everything that this cluster state knows."""
        cards = [self.marks.without_marks(self.cards(node)) for node in self.totals.nodes]
        provisional, hosts = frozenset(self.adoption.provisional), self.totals.hosts
        marks = dict(self.marks.all)
        return Snapshot(
            cards,
            self.ledger.all(),
            provisional,
            self._quota_text,
            marks,
            hosts.offered,
            hosts.pods,
            self.shapes.counts.record(),
            frozenset(self.shapes.uids),
            self.totals.now,
            tuple(self.totals.loads),
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Fill an empty cluster state from a snapshot."""
        self.totals.now = max(self.totals.now, snapshot.now)
        for load in snapshot.loads:
            self.totals.set_load(load)
        self._read_quotas(snapshot.quotas)
        for node, indexes in snapshot.marks.items():
            self.marks.put(node, indexes)
        self.totals.restore([self.marks.on(cards) for cards in snapshot.cards], snapshot.entries)
        self.adoption.provisional |= snapshot.provisional
        self.shapes.restore(snapshot.shapes, snapshot.counted)
        for node, host in snapshot.offered.items():
            self.totals.offer_host(node, host)
        for node, pods in snapshot.bound.items():
            for uid, host in pods.items():
                self.totals.occupy_host(uid, node, host)


def _holders(entries: Iterable[Entry]) -> list[Holder]:
    return [Holder(entry.uid, entry.owner.pod, entry.owner.priority, entry.charges) for entry in entries]


def _our_prefix(dialects: Dialects) -> str:
    ours = dialects.get("aliquot")
    return ours.prefix if ours else "aliquot.io"


def _check_defaults(dialect: Dialect) -> None:
    engine.check_policies(
        dialect.gpu_policy,
        dialect.node_policy,
        gpu_field=f"dialect {dialect.name}, gpu_policy",
        node_field=f"dialect {dialect.name}, node_policy",
        error=BadConfig,
    )
