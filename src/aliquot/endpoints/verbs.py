"""Scheduler calls, as every endpoint handles them in any wire format."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import structlog

from aliquot import metrics
from aliquot.clock import came
from aliquot.control import ControlPlane, Role
from aliquot.control.placing.filter_results import demand_hash
from aliquot.dialects import Demand, Dialect
from aliquot.endpoints.extender import BadCall, BindCall, PreemptCall, Victims
from aliquot.endpoints.names import Grouped, Names, Texts
from aliquot.endpoints.pod_checks import CacheMatch, PodChecks
from aliquot.endpoints.points import points
from aliquot.engine import FITS, NUMBERED, Bools, Ints, Judgement
from aliquot.errors import BadDemand, BadInput, Refused
from aliquot.model import OF_MODEL, Placement, Pod, Reason

_log = structlog.get_logger()

NOT_CHOSEN = "the pod has already been matched to another node"
"""Refusal of nodes that fit, for endpoints that return only the best node."""
_PREEMPTED = "PreemptionByScheduler"
_REFUSALS = {reason: metrics.REFUSALS.labels(reason.name.lower()) for reason in Reason}


@dataclass(frozen=True)
class FilterResult:
    """A filter's result for the nodes of a call."""

    passed: Names
    refused: Texts = field(default_factory=Texts)
    """Why, in words that stay the same as long as the result does."""
    reasons: Grouped[Reason] = field(default_factory=Grouped)
    """The engine's reason, if there is one."""
    dialect: Dialect | None = None
    """None for a pod that requests no GPU, or has an unreadable request."""
    emptying: str = ""
    """A refused node where pods end for this pod: the pod only has to wait."""
    reserved: str = ""
    """The node with the pod's reservation."""

    def without(self, nodes: Mapping[str, Bools]) -> "FilterResult":
        """The result with more of its nodes refused, for each of these reasons those in its mask."""
        refused = [(picked, why) for why, mask in nodes.items() if (picked := self.passed.picked(mask))]
        passed = self.passed.picked(~np.any([*nodes.values()], axis=0)) if refused else self.passed
        return replace(self, passed=passed, refused=Texts([*self.refused.groups, *refused]))

    @property
    def outcome(self) -> str:
        return "fits" if self.passed else "fits nowhere"


class Verbs:
    """The verbs of kube-scheduler and similar schedulers. Only `bind` writes to the cluster; see `filter` for state in
    memory."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._cluster = plane.cluster
        self._pod_checks = PodChecks(plane)
        self._asked: tuple[Pod, Demand | None] | None = None
        self.last_passed: Names | None = None
        """The nodes that the last filter passed: prioritize asks about them next."""

    def out_of_sync(self) -> str:
        """Why the informer caches are not synced; until they are, cards in use can look free."""
        missing = self._plane.out_of_sync()
        return f"Aliquot is out of sync with the API server: {'; '.join(missing)}" if missing else ""

    def not_ready(self) -> str:
        """Why we cannot decide: views need synced caches, decisions also need a leader."""
        return self.out_of_sync() or self._plane.leadership.no_holder()

    def _demand_of(self, pod: Pod) -> Demand | None:
        """Decode once for filter and the prioritize that follows it. Raises BadDemand."""
        if self._asked is None or self._asked[0] != pod:
            self._asked = pod, self._cluster.demand_of(pod)
        return self._asked[1]

    # -- filter

    async def filter(self, pod: Pod, names: Names, *, best_only: bool = False, reserve: bool = False) -> FilterResult:
        """Find the nodes that fit a pod; with `best_only` only the best. With `reserve`, for endpoints without bind,
        reserve the pod's cards for a while if one node is left. Refuse an unreadable demand everywhere, since
        schedulers would retry an error forever. Raises Refused and KubeError if the reservation fails."""
        result = await self._filter(pod, names, best_only=best_only, reserve=reserve)
        if pod.metadata.uid:
            self._remember(pod, result)
        return result

    async def _filter(self, pod: Pod, names: Names, *, best_only: bool, reserve: bool) -> FilterResult:
        try:
            demand = self._demand_of(pod)
        except BadDemand as error:
            metrics.REFUSALS.labels("bad_demand").inc(len(names))
            return FilterResult(names).without({str(error): np.ones(len(names), np.bool_)})
        if demand is None:
            return FilterResult(names)
        known = await self._reservable(pod, demand) if reserve else None
        # from here on without waiting: nobody else may take the part between the decision and the reservation
        if reserve and self._pod_checks.compare(pod) is CacheMatch.SAME:
            self._plane.reservations.release(pod.metadata.uid)
        result, judgement = self._judge(pod, demand, names, emptied=[] if reserve else self._emptied_for(pod, demand))
        if reserve:
            result = self._without_strangers(result, demand.dialect)
        if best_only and result.passed:
            result = self._best_of(result, judgement, demand)
        if known is not None and len(result.passed) == 1:
            (node,) = result.passed
            chosen = judgement.placement(node) if self._cluster.demand_of(known) == demand else None
            if self.reserve(known, node, chosen=chosen):
                result = replace(result, reserved=node)
        return result

    async def _reservable(self, pod: Pod, demand: Demand) -> Pod | None:
        """The cluster's version of a pod for which this server may reserve a part. None if the cluster does not have
        the pod, or we do not serve its scheduler. If the API server no longer has its victims, waits until our informer
        cache has seen them go, too: only then can anybody reserve their cards. Raises NotLeading and KubeError."""
        if self._plane.leadership.role is Role.OBSERVING or not pod.metadata.uid:
            return None
        self._plane.leadership.require()
        try:
            known = await self.asked_pod(pod)
        except (BadInput, Refused):
            return None
        uid, nominated = pod.metadata.uid, pod.status.nominated_node_name
        victims = self._victims_held(uid, demand).get(nominated, [])
        if not any([await self._is_alive(victim) for victim in victims]):
            await self._see_gone(uid, demand, nominated)
        return known

    def _remember(self, pod: Pod, result: FilterResult) -> None:
        """Record a result for bind and the requeuer. A result for a foreign pod, or for a body that differs from our
        informer cache, changes nothing that we know of the pod."""
        match = self._pod_checks.compare(pod)
        if match in (CacheMatch.SAME, CacheMatch.UNKNOWN):
            self._remember_passed(pod, result.passed, match)
        if result.dialect is None or match is CacheMatch.FOREIGN:
            return
        if not result.passed:
            self._remember_refused(pod, match)
        elif match is not CacheMatch.CHANGED:
            self._plane.requeuer.passed(pod)

    def _remember_passed(self, pod: Pod, passed: Names, match: CacheMatch) -> None:
        fleet = self._cluster.fleet
        columns = passed.columns(fleet)
        asked = demand_hash(self._demand_of(pod)) if len(columns) else 0
        namespace = self._namespace_of_known(pod, match)
        self._plane.passes.put(pod.metadata.uid, fleet, columns, asked=asked, namespace=namespace)

    def _remember_refused(self, pod: Pod, match: CacheMatch) -> None:
        known = self._plane.pod_by_uid(pod.metadata.uid)
        if known is not None and match is CacheMatch.SAME:
            self._plane.requeuer.refused(known)
        else:
            self._plane.requeuer.refused_early(pod.metadata.uid)

    def _namespace_of_known(self, pod: Pod, match: CacheMatch) -> str | None:
        return pod.metadata.namespace if match is CacheMatch.SAME else None

    def _judge(
        self, pod: Pod, demand: Demand, names: Names, *, emptied: Collection[str]
    ) -> tuple[FilterResult, Judgement]:
        columns = names.columns(self._cluster.fleet)
        judgement = self._cluster.judge(demand, columns)
        # the pod's own claim, from an unanswered Binding, does not count against a node
        passing = [*self._cluster.claimed_by(demand), *emptied]
        numbers = judgement.reasons_at(columns, but=passing)
        found = [(NUMBERED[number], names.picked(numbers == number)) for number in np.unique(numbers[numbers != FITS])]
        for reason, nodes in found:
            _REFUSALS[reason].inc(len(nodes))
        refused = Texts([text for reason, nodes in found for text in self._worded(demand, reason, nodes)])
        reasons = Grouped([(nodes, reason) for reason, nodes in found])
        nominated = pod.status.nominated_node_name
        emptying = nominated if nominated and nominated in reasons and self._is_emptied_for(pod, nominated) else ""
        self.last_passed = names.picked(numbers == FITS)
        return FilterResult(self.last_passed, refused, reasons, demand.dialect, emptying), judgement

    def _emptied_for(self, pod: Pod, demand: Demand) -> list[str]:
        """Nodes where a pod fits once the victims that we named are gone, even if our informer cache still has them. In
        that case bind waits."""
        uid, preemptions = pod.metadata.uid, self._plane.preemptions
        if uid not in preemptions:
            return []
        named = preemptions.victims_of(uid, demand_hash(demand))
        nominated = pod.status.nominated_node_name
        return self._cluster.emptied_for(
            demand, {node: victims for node, victims in named.items() if not nominated or node == nominated}
        )

    def _worded(self, demand: Demand, reason: Reason, nodes: Names) -> Iterator[tuple[Names, str]]:
        if reason not in OF_MODEL:
            yield nodes, demand.dialect.words(reason)
            return
        fleet = self._cluster.fleet
        for alike, cards in fleet.card_types(nodes.columns(fleet)):
            yield nodes.picked(alike), demand.dialect.words_for(reason, cards, demand.request)

    def _is_emptied_for(self, pod: Pod, node: str) -> bool:
        """Report whether a pod with cards there ends for this pod, as far as we can tell. kube-scheduler also leaves a
        node alone while pods that it preempted end there."""
        entries = self._cluster.ledger.entries(node)
        holders = (self._plane.pod_by_uid(entry.uid) for entry in entries if entry.owner.priority < pod.priority)
        return any(holder is not None and _is_preempted(holder) for holder in holders)

    def _without_strangers(self, result: FilterResult, dialect: Dialect) -> FilterResult:
        """Also refuse nodes where nobody would record the pod's cards, since the scheduler binds itself."""
        whys = np.array([self._plane.late.why_never(node, dialect) for node in result.passed], np.str_)
        return result.without({why: whys == why for why in np.unique(whys[whys != ""]).tolist()})

    def _best_of(self, result: FilterResult, judgement: Judgement, demand: Demand) -> FilterResult:
        """Choose the best node. After an unanswered Binding, choose its node again: another would hold a second
        reservation."""
        tried = set(self._cluster.claimed_by(demand)) & set(result.passed)
        best = min(tried) if tried else judgement.best(result.passed) or result.passed[0]
        return result.without({NOT_CHOSEN: np.array([name != best for name in result.passed])})

    def reserve(self, pod: Pod, node: str, *, chosen: Placement | None = None) -> bool:
        """Reserve a pod's cards on a node until it is bound there. Takes the cluster's version of the pod. Returns
        False if it no longer waits or requests nothing. Raises Refused, NoRoom, BadDemand, NotLeading."""
        if not pod.waits:
            return False
        return bool(
            self._plane.reservations.reserve(pod, node, self._plane.settings.late.hold, chosen=chosen).containers
        )

    async def asked_pod(self, pod: Pod) -> Pod:
        """The cluster's version of a body's pod. Raises BadCall, Refused and KubeError."""
        return await self._pod_checks.find(pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)

    # -- prioritize

    def scores(self, pod: Pod, names: Names) -> tuple[str, Ints]:
        """The pod's dialect, and the points of every node; for a pod that requests no GPU, 0. The pod's own reservation
        does not count against its node."""
        try:
            demand = self._demand_of(pod)
        except BadDemand:
            demand = None
        if demand is None:
            return "", np.zeros(len(names), np.int64)
        columns, has_claims = names.columns(self._cluster.fleet), bool(self._cluster.ledger.nodes_of(pod.metadata.uid))
        with self._cluster.trial(without=pod.metadata.uid) if has_claims else nullcontext():
            standings = self._cluster.judge(demand, columns).standings_at(columns)
        return demand.dialect.name, points(standings)

    # -- bind

    async def bind(self, asked: BindCall) -> str:
        """Bind a pod with its cards; returns the name of its dialect. Raises AliquotError with the text for the
        caller."""
        if why := self.not_ready():
            raise Refused(why)
        pod = await self._pod_checks.find(asked.name, asked.namespace, asked.uid)
        node = self._plane.nodes.get(asked.node)
        if node is None:
            raise BadCall(f'node "{asked.node}" not found')
        await self._pod_checks.require_passed(pod, node)
        await self._await_victims(pod, asked.node)
        placed = await self._plane.committer.commit(pod, asked.node)
        return placed.placement.dialect

    async def _await_victims(self, pod: Pod, node: str) -> None:
        """Wait until our informer cache has seen this pod's victims end, if the API server confirms that they were
        evicted. Raises BadDemand and KubeError."""
        uid, demand = pod.metadata.uid, self._cluster.demand_of(pod)
        held = self._victims_held(uid, demand).get(node, [])
        for victim in held:
            if await self._is_alive(victim):
                self._plane.preemptions.stay(uid, node)
                return
        await self._see_gone(uid, demand, node)

    async def _see_gone(self, uid: str, demand: Demand | None, node: str) -> None:
        """Wait until our informer cache has seen a pod's victims go from a node, at most `commit.look`."""
        until = self._plane.clock.monotonic() + self._plane.settings.commit.look
        with self._plane.changed.as_event() as changed:
            while node in self._victims_held(uid, demand) and (left := until - self._plane.clock.monotonic()) > 0:
                changed.clear()
                await came(changed, left, self._plane.clock)

    def _victims_held(self, uid: str, demand: Demand | None) -> dict[str, list[str]]:
        """Victims by node that we named for a pod and that still hold cards in the ledger."""
        return self._holding(self._plane.preemptions.victims_of(uid, demand_hash(demand)))

    def _holding(self, victims: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
        """Victims by node that hold cards there."""
        entry = self._cluster.ledger.entry
        held = {
            node: [found.uid for uid in uids if (found := entry(uid, node)) is not None]
            for node, uids in victims.items()
        }
        return {node: uids for node, uids in held.items() if uids}

    async def _is_alive(self, uid: str) -> bool:
        """Report whether a pod of our informer cache still exists in the API server and has not ended. Raises
        KubeError."""
        known = self._plane.pod_by_uid(uid)
        if known is None:
            return False
        now = await self._pod_checks.read(known.metadata.name, known.metadata.namespace)
        return now is not None and now.metadata.uid == uid and not now.ended

    # -- preempt

    async def preempt(self, asked: PreemptCall) -> tuple[str, dict[str, Victims]]:
        """The pod's dialect, and the nodes where victims free enough cards.

        The victims are the proposed pods, and perhaps more of lower priority. A victim that the scheduler chose stays a
        victim: it may free another resource. We omit a node that needs no victim, since kube-scheduler treats an empty
        list as an error. We also omit a node that exceeds the effort of a decision. Violations of disruption budgets
        add to the scheduler's count, since it prefers the node with the fewest. While pods end for this pod on its
        nominated node, we offer no other node. Raises KubeError.
        """
        try:
            demand = self._cluster.demand_of(asked.pod)
        except BadDemand:
            return "", {}
        if demand is None:
            return "", {node: given for node, given in asked.victims.items() if given.uids}
        emptied, left = await self._being_emptied(asked.pod, demand), dict[str, Victims]()
        proposed = {node: given.uids for node, given in asked.victims.items() if not emptied or node == emptied}
        for node, uids in self._cluster.complete_victims(demand, proposed, self._can_end).items():
            if uids:
                violations = asked.victims[node].pdb_violations + self._added_violations(proposed[node], uids)
                left[node] = Victims(sorted(uids, key=self._priority, reverse=True), violations)
        self._remember_victims(asked.pod, demand, left)
        return demand.dialect.name, left

    def _remember_victims(self, pod: Pod, demand: Demand, left: Mapping[str, Victims]) -> None:
        """Record victims that hold cards, unless the body differs from our informer cache: a body must not raise a
        pod's priority or shrink it."""
        uid, match = pod.metadata.uid, self._pod_checks.compare(pod)
        if not uid or match not in (CacheMatch.SAME, CacheMatch.UNKNOWN):
            return
        named = self._holding({node: victims.uids for node, victims in left.items()})
        namespace = self._namespace_of_known(pod, match)
        self._plane.preemptions.name(uid, named, asked=demand_hash(demand), namespace=namespace)

    async def _being_emptied(self, pod: Pod, demand: Demand) -> str:
        """The pod's nominated node in the API server, while victims that we named there still hold cards as far as we
        know. Raises KubeError."""
        held, meta = self._victims_held(pod.metadata.uid, demand), pod.metadata
        now = await self._pod_checks.read(meta.name, meta.namespace) if held else None
        nominated = now.status.nominated_node_name if now is not None else ""
        return nominated if nominated in held else ""

    def _added_violations(self, proposed: Sequence[str], victims: Sequence[str]) -> int:
        """Count the added victims that a budget protects, once the proposed victims have used it up."""
        added = [uid for uid in victims if uid not in proposed]
        if not added:
            return 0
        first = [pod for uid in proposed if (pod := self._plane.pod_by_uid(uid)) is not None]
        rest = [pod for uid in added if (pod := self._plane.pod_by_uid(uid)) is not None]
        budgets = self._plane.budgets
        return budgets.violations([*first, *rest]) - budgets.violations(first)

    def _can_end(self, uid: str) -> bool:
        """Report whether kube-scheduler knows this UID: it gives up all victims for a single unknown UID."""
        pod = self._plane.pod_by_uid(uid)
        return pod is not None and bool(pod.spec.node_name) and not pod.has_final_phase

    def _priority(self, uid: str) -> int:
        """A victim's priority. kube-scheduler expects the highest first, and compares nodes by it."""
        pod = self._plane.pod_by_uid(uid)
        return pod.priority if pod is not None else 0


def _is_preempted(pod: Pod) -> bool:
    """Report whether a pod is terminating for no reason other than preemption; schedulers before 1.26 give no
    reason."""
    causes = [c.reason for c in pod.status.conditions or () if c.type == "DisruptionTarget" and c.status == "True"]
    return pod.metadata.deletion_timestamp is not None and all(cause == _PREEMPTED for cause in causes)
