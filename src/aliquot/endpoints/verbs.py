"""What every endpoint does with a scheduler's call, whatever the words in which it came."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import structlog

from aliquot import metrics
from aliquot.clock import came
from aliquot.control import ControlPlane
from aliquot.control.state.remembered import asked_by
from aliquot.dialects import Demand, Dialect
from aliquot.endpoints.acting import Acting, Standing
from aliquot.endpoints.extender import BadCall, BindCall, PreemptCall, Victims
from aliquot.endpoints.names import Grouped, Names, Texts
from aliquot.engine import FITS, NUMBERED, Floats, Ints, Judgement
from aliquot.errors import BadDemand, BadInput, Refused
from aliquot.model import OF_MODEL, Placement, Pod, Reason

_log = structlog.get_logger()

NOT_CHOSEN = "the pod has already been matched to another node"
"""For nodes that would do where an endpoint leaves only the best one."""
BEST_SCORE = 10
_EVEN_SCORE = 5
_PREEMPTED = "PreemptionByScheduler"
_REFUSALS = {reason: metrics.REFUSALS.labels(reason.name.lower()) for reason in Reason}


@dataclass(frozen=True)
class Verdict:
    """What a filter says of the nodes that it was asked about."""

    passed: Sequence[str]
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why, in words that are the same for as long as the verdict is."""
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    """The engine's reason, where it is one."""
    dialect: Dialect | None = None
    """None for a pod that asks no GPU, or in a way that nobody can read."""
    emptying: str = ""
    """A refused node that is being emptied for this very pod: it has only to wait."""
    kept: str = ""
    """The node on which the pod's part is kept for it."""

    @property
    def outcome(self) -> str:
        return "fits" if self.passed else "fits nowhere"


class Verbs:
    """The questions of kube-scheduler and its like. Every one but `bind` is answered without a write; see `filter` for
    what is kept in memory."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._cluster = plane.cluster
        self._acting = Acting(plane)
        self._asked: tuple[Pod, Demand | None] | None = None
        self.last_passed: Names | None = None
        """The nodes that the last filter let pass: prioritize comes next, and about these."""

    def out_of_step(self) -> str:
        """Before both mirrors are whole, a part that is held can look free."""
        missing = self._plane.out_of_step()
        return f"Aliquot is not in step with the API server: {'; '.join(missing)}" if missing else ""

    def not_ready(self) -> str:
        """Showing needs a mirror, deciding also somebody who may commit."""
        return self.out_of_step() or self._plane.leadership.no_holder()

    def _demand_of(self, pod: Pod) -> Demand | None:
        """Read once for filter and prioritize, which follow each other. Raises BadDemand."""
        if self._asked is None or self._asked[0] != pod:
            self._asked = pod, self._cluster.demand_of(pod)
        return self._asked[1]

    # -- filter

    async def filter(self, pod: Pod, names: Names, *, one: bool = False, keep: bool = False) -> Verdict:
        """Which of these nodes can take a pod; with `one` the best alone. With `keep`, for endpoints that are not
        asked to bind, the part is kept for the pod for a while where one node is left. A demand that cannot be read is
        refused everywhere: an error would be tried again for ever. Raises Refused and KubeError where a part cannot be
        kept."""
        verdict = await self._filter(pod, names, one=one, keep=keep)
        if pod.metadata.uid:
            self._remember(pod, verdict)
        return verdict

    async def _filter(self, pod: Pod, names: Names, *, one: bool, keep: bool) -> Verdict:
        try:
            demand = self._demand_of(pod)
        except BadDemand as error:
            metrics.REFUSALS.labels("bad_demand").inc(len(names))
            return Verdict([], Texts([(names, str(error))]))
        if demand is None:
            return Verdict(names)
        if keep and self._acting.standing(pod) is Standing.SAME:
            self._plane.reservations.release(pod.metadata.uid)
        verdict, judgement = self._judge(pod, demand, names)
        if keep:
            verdict = self._without_strangers(verdict, demand.dialect)
        if one and verdict.passed:
            verdict = self._best_of(verdict, judgement, demand)
        if keep and len(verdict.passed) == 1 and self._plane.leadership.may_commit:
            (node,) = verdict.passed
            placement = judgement.placement(node)
            if placement is not None and await self._keep_passed(pod, node, demand, placement):
                verdict = replace(verdict, kept=node)  # without one the pods that end for it still count
        return verdict

    def _remember(self, pod: Pod, verdict: Verdict) -> None:
        """For bind and for the requeuer, of a pod as our mirror has it: an answer about a pod that is not ours, or asks
        for something else than the body says, changes nothing of what is known of it."""
        standing = self._acting.standing(pod)
        if standing in (Standing.SAME, Standing.UNKNOWN):
            self._remember_passed(pod, verdict.passed, standing)
        if verdict.dialect is None or standing is Standing.FOREIGN:
            return
        if not verdict.passed:
            self._remember_refused(pod, standing)
        elif standing is not Standing.CHANGED:
            self._plane.requeuer.passed(pod)

    def _remember_passed(self, pod: Pod, passed: Sequence[str], standing: Standing) -> None:
        fleet = self._cluster.fleet
        columns: Ints | list[int]
        if isinstance(passed, Names):
            columns = passed.columns(fleet)
        else:
            columns = [column for node in passed if (column := fleet.column(node)) is not None]
        asked = asked_by(self._demand_of(pod)) if len(columns) else 0
        namespace = self._namespace_of_known(pod, standing)
        self._plane.passes.put(pod.metadata.uid, fleet, columns, asked=asked, namespace=namespace)

    def _remember_refused(self, pod: Pod, standing: Standing) -> None:
        known = self._plane.pod_by_uid(pod.metadata.uid)
        if known is not None and standing is Standing.SAME:
            self._plane.requeuer.refused(known)
        else:
            self._plane.requeuer.refused_early(pod.metadata.uid)

    def _namespace_of_known(self, pod: Pod, standing: Standing) -> str | None:
        return pod.metadata.namespace if standing is Standing.SAME else None

    def _judge(self, pod: Pod, demand: Demand, names: Names) -> tuple[Verdict, Judgement]:
        columns = names.columns(self._cluster.fleet)
        judgement = self._cluster.judge(demand, columns)
        # its own claim, of a Binding without an answer, is no reason against a node
        passing = [*self._cluster.claimed_by(demand), *self._emptied_for(pod, demand)]
        numbers = judgement.reasons_at(columns, but=passing)
        found = [(NUMBERED[number], names.picked(numbers == number)) for number in np.unique(numbers[numbers != FITS])]
        for reason, nodes in found:
            _REFUSALS[reason].inc(len(nodes))
        refused = Texts([text for reason, nodes in found for text in self._worded(demand, reason, nodes)])
        reasons = Grouped([(nodes, reason) for reason, nodes in found])
        nominated = pod.status.nominated_node_name
        emptying = nominated if nominated and nominated in reasons and self._is_emptied_for(pod, nominated) else ""
        self.last_passed = names.picked(numbers == FITS)
        return Verdict(self.last_passed, refused, reasons, demand.dialect, emptying), judgement

    def _emptied_for(self, pod: Pod, demand: Demand) -> list[str]:
        """Nodes where a pod fits once the victims that we named for it are gone, whether our mirror has seen that or
        not. Where it has not, bind waits for it."""
        uid, preemptions = pod.metadata.uid, self._plane.preemptions
        if uid not in preemptions:
            return []
        named = preemptions.victims_of(uid, asked_by(demand))
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
        """Whether a pod that holds a card there ends for this one, as far as can be told: kube-scheduler, too, leaves a
        node as it is while pods that it has preempted end there."""
        entries = self._cluster.ledger.entries(node)
        holders = (self._plane.pod_by_uid(entry.uid) for entry in entries if entry.owner.priority < pod.priority)
        return any(holder is not None and _is_preempted(holder) for holder in holders)

    def _without_strangers(self, verdict: Verdict, dialect: Dialect) -> Verdict:
        """Where the scheduler binds, nodes on which nobody would write down the pod's cards are refused, too."""
        never = {node: why for node in verdict.passed if (why := self._plane.late.why_never(node, dialect))}
        if not never:
            return verdict
        passed = [node for node in verdict.passed if node not in never]
        return replace(verdict, passed=passed, refused={**verdict.refused, **never})

    def _best_of(self, verdict: Verdict, judgement: Judgement, demand: Demand) -> Verdict:
        """After a Binding without an answer its node again: any other would hold a second part."""
        tried = set(self._cluster.claimed_by(demand)) & set(verdict.passed)
        best = min(tried) if tried else judgement.best(verdict.passed) or verdict.passed[0]
        others = {name: NOT_CHOSEN for name in verdict.passed if name != best}
        return replace(verdict, passed=[best], refused={**verdict.refused, **others})

    async def _keep_passed(self, pod: Pod, node: str, demand: Demand, chosen: Placement) -> bool:
        """For a pod that is not in the cluster as the body says, or of a scheduler that we do not serve, nothing is
        kept, and the answer stays."""
        meta = pod.metadata
        try:
            known = await self._acting.pod(meta.name, meta.namespace, meta.uid)
        except (BadInput, Refused):
            return False
        return self.keep(known, node, chosen=chosen if self._cluster.demand_of(known) == demand else None)

    def keep(self, pod: Pod, node: str, *, chosen: Placement | None = None) -> bool:
        """Keep the part of a pod, as the cluster has it, on a node until it is bound there; not for one that waits no
        more, or asks for nothing. Raises Refused, NoRoom, BadDemand, NotLeading."""
        if not pod.waits:
            return False
        return bool(
            self._plane.reservations.reserve(pod, node, self._plane.settings.late.hold, chosen=chosen).containers
        )

    async def asked_pod(self, pod: Pod) -> Pod:
        """The pod of a body as the cluster has it. Raises BadCall, Refused and KubeError."""
        return await self._acting.pod(pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)

    # -- prioritize

    def scores(self, pod: Pod, names: Names) -> tuple[str, Ints]:
        """The pod's dialect, and a score for every node: from 0 to 10, the best node's 10; all of one worth 5; 0 where
        the pod does not fit, or asks no GPU. A part that is kept for the pod itself is no reason against its node."""
        try:
            demand = self._demand_of(pod)
        except BadDemand:
            demand = None
        if demand is None:
            return "", np.zeros(len(names), np.int64)
        columns, has_claims = names.columns(self._cluster.fleet), bool(self._cluster.ledger.nodes_of(pod.metadata.uid))
        with self._cluster.without(pod) if has_claims else nullcontext():
            scores = self._cluster.judge(demand, columns).scores_at(columns)
        return demand.dialect.name, spread_out(scores)

    # -- bind

    async def bind(self, asked: BindCall) -> str:
        """Bind a pod with its part; returns the name of its dialect. Raises AliquotError with what is to be said."""
        if why := self.not_ready():
            raise Refused(why)
        pod, node = await self._acting.pod(asked.name, asked.namespace, asked.uid), self._plane.nodes.get(asked.node)
        if node is None:
            raise BadCall(f'node "{asked.node}" not found')
        await self._acting.require_passed(pod, node)
        await self._await_victims(pod, asked.node)
        placed = await self._plane.committer.commit(pod, asked.node)
        return placed.placement.dialect

    async def _await_victims(self, pod: Pod, node: str) -> None:
        """Wait until our mirror has seen the end of the pods that were evicted for this one; the API server says
        whether they were. Raises BadDemand and KubeError."""
        uid, demand = pod.metadata.uid, self._cluster.demand_of(pod)
        held = self._victims_held(uid, demand).get(node, [])
        for victim in held:
            if await self._is_alive(victim):
                self._plane.preemptions.stay(uid, node)
                return
        until = self._plane.clock.monotonic() + self._plane.settings.commit.look
        with self._plane.changed.as_event() as changed:
            while node in self._victims_held(uid, demand) and (left := until - self._plane.clock.monotonic()) > 0:
                changed.clear()
                await came(changed, left, self._plane.clock)

    def _victims_held(self, uid: str, demand: Demand | None) -> dict[str, list[str]]:
        """By node, the victims that we named for a pod and that still hold cards in the ledger."""
        return self._holding(self._plane.preemptions.victims_of(uid, asked_by(demand)))

    def _holding(self, victims: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
        """By node, those that hold cards there."""
        entry = self._cluster.ledger.entry
        held = {
            node: [found.uid for uid in uids if (found := entry(uid, node)) is not None]
            for node, uids in victims.items()
        }
        return {node: uids for node, uids in held.items() if uids}

    async def _is_alive(self, uid: str) -> bool:
        """Whether the API server has a pod of our mirror, and it has not ended. Raises KubeError."""
        known = self._plane.pod_by_uid(uid)
        if known is None:
            return False
        now = await self._acting.read(known.metadata.name, known.metadata.namespace)
        return now is not None and now.metadata.uid == uid and not now.ended

    # -- preempt

    async def preempt(self, asked: PreemptCall) -> tuple[str, dict[str, Victims]]:
        """The pod's dialect, and the nodes on which ending the proposed pods, and perhaps more of lower priority, makes
        room on the cards.

        A victim that the scheduler has chosen stays one: it may free something else. A node that needs no victim is
        left out, since kube-scheduler takes an empty list for a fault, and so is one that the effort of one decision
        does not reach. Violations of disruption budgets count on from
        the scheduler's own, since it prefers the node with the fewest. While pods end for this one on the node that it
        is nominated for, no other node is offered. Raises KubeError.
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
        """Those that hold cards, for a pod as our mirror has it: a body that makes it more important, or smaller, does
        not count."""
        uid, standing = pod.metadata.uid, self._acting.standing(pod)
        if not uid or standing not in (Standing.SAME, Standing.UNKNOWN):
            return
        named = self._holding({node: victims.uids for node, victims in left.items()})
        namespace = self._namespace_of_known(pod, standing)
        self._plane.preemptions.name(uid, named, asked=asked_by(demand), namespace=namespace)

    async def _being_emptied(self, pod: Pod, demand: Demand) -> str:
        """The node that a pod is nominated for, by the API server's word, while victims that we named there still hold
        cards as far as we know. Raises KubeError."""
        held, meta = self._victims_held(pod.metadata.uid, demand), pod.metadata
        now = await self._acting.read(meta.name, meta.namespace) if held else None
        nominated = now.status.nominated_node_name if now is not None else ""
        return nominated if nominated in held else ""

    def _added_violations(self, proposed: Sequence[str], victims: Sequence[str]) -> int:
        """How many of the victims that were not proposed a budget protects, once the proposed ones have used it up."""
        added = [uid for uid in victims if uid not in proposed]
        if not added:
            return 0
        first = [pod for uid in proposed if (pod := self._plane.pod_by_uid(uid)) is not None]
        rest = [pod for uid in added if (pod := self._plane.pod_by_uid(uid)) is not None]
        budgets = self._plane.budgets
        return budgets.violations([*first, *rest]) - budgets.violations(first)

    def _can_end(self, uid: str) -> bool:
        """kube-scheduler knows a pod by this UID, and gives up all victims if it does not know one of them."""
        pod = self._plane.pod_by_uid(uid)
        return pod is not None and bool(pod.spec.node_name) and pod.status.phase not in ("Succeeded", "Failed")

    def _priority(self, uid: str) -> int:
        """Of a victim: kube-scheduler takes the first for the one with the highest, and compares nodes by it."""
        pod = self._plane.pod_by_uid(uid)
        return pod.priority if pod is not None else 0


def _is_preempted(pod: Pod) -> bool:
    """It is on its way out, and nobody says that it is for another reason; schedulers before 1.26 give none."""
    causes = [c.reason for c in pod.status.conditions or () if c.type == "DisruptionTarget" and c.status == "True"]
    return pod.metadata.deletion_timestamp is not None and all(cause == _PREEMPTED for cause in causes)


def spread_out(raw: Floats) -> Ints:
    """Raw scores as whole numbers from 0 to 10; not a number becomes 0."""
    fits = ~np.isnan(raw)
    least, most = raw[fits].min(initial=np.inf), raw[fits].max(initial=-np.inf)
    if least >= most:
        return np.where(fits, _EVEN_SCORE, 0)
    points = np.rint((raw - least) * (BEST_SCORE / (most - least)))
    return np.where(fits, points, 0).astype(np.int64)
