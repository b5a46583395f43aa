"""Volcano's extender: which nodes fit a task, their scores, and the task's reservation.

Volcano chooses and binds itself, so we write placements late. Its predicate and prioritize reserve nothing. From 1.13
on it also reports where it puts a task: we hold a reservation until the pod is bound or deallocated.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aliquot import metrics
from aliquot.control import ControlPlane
from aliquot.control.state import assumed_pods
from aliquot.control.state.assumed_pods import AssumedPods
from aliquot.dialects import Demand
from aliquot.endpoints import access_log, asgi
from aliquot.endpoints.endpoint import Extender, Table, Wire
from aliquot.endpoints.forwarding import Forwarder
from aliquot.endpoints.object_limit import BadCall
from aliquot.endpoints.points import points
from aliquot.endpoints.verbs import Verbs
from aliquot.endpoints.volcano_wire import (
    Code,
    EventCall,
    NodeInfo,
    PredicateCall,
    PredicateFormat,
    PrioritizeCall,
    Status,
    Task,
    event_answer,
    predicate_answer,
    read,
    scores_answer,
)
from aliquot.errors import AliquotError, BadDemand, NoRoom, Refused
from aliquot.model import Pod
from aliquot.model.bounds import MAX_ASSUMED_PODS, MAX_ASSUMED_PODS_OF_NODE

_PER_POINT = 10_000.0
"""Volcano adds up the scores of its plugins, and knows no weight for ours. Its own plugins score up to 100 times their
weight, a few thousand together by default, and must not undo our choice. One point is as much as with the weight in our
configurations of kube-scheduler."""
_ALLOCATED = Status.ALLOCATED | Status.BINDING | Status.BOUND


def volcano_routes(
    plane: ControlPlane,
    endpoint: str,
    forwarder: Forwarder | None,
    prefix: str,
    answer_format: PredicateFormat | None = None,
) -> Table:
    """`PREFIX/vpredicates` and so on, as part of an endpoint. Without a format, detect the caller's version."""
    volcano, extender = Volcano(plane, answer_format), Extender(plane, endpoint, forwarder, Wire())
    verbs: dict[str, tuple[asgi.Handler, Callable[[str], asgi.Response]]] = {
        "vpredicates": (volcano.predicates, volcano.no_predicate),
        "vprioritize": (volcano.prioritize, _no_scores),
        "vallocate": (volcano.allocate, _event),
        "vdeallocate": (volcano.deallocate, _event),
    }
    return {("POST", f"{prefix}/{verb}"): extender.decision(verb, *both) for verb, both in verbs.items()}


@dataclass(frozen=True)
class _UnknownTasks:
    """Tasks on a node that are missing from our cluster state, as they came."""

    allocated: list[Task] = field(default_factory=list)
    pipelined: list[Task] = field(default_factory=list)
    releasing: list[str] = field(default_factory=list)

    def read(self) -> AssumedPods:
        """Raises BadCall."""
        return AssumedPods(
            [task.pod() for task in self.allocated], [task.pod() for task in self.pipelined], self.releasing
        )


class Volcano:
    def __init__(self, plane: ControlPlane, answer_format: PredicateFormat | None = None) -> None:
        self._plane = plane
        self._cluster = plane.cluster
        self._verbs = Verbs(plane)
        self._format = answer_format

    # -- predicate

    async def predicates(self, call: asgi.Call) -> asgi.Response:
        answer_format, dialect = self._format, ""
        try:
            asked = read(call.body, PredicateCall)
            answer_format = answer_format or asked.answer_format
            if why := self._verbs.not_ready():
                raise Refused(why)
            pod = asked.task.pod()
            demand = self._cluster.demand_of(pod)
            if demand is None:
                return _answered(answer_format, "", Code.SUCCESS)
            dialect = demand.dialect.name
            return self._judged(answer_format, asked, pod, demand)
        except BadDemand as error:
            metrics.REFUSALS.labels("bad_demand").inc()
            return _answered(answer_format, dialect, Code.UNRESOLVABLE, str(error))
        except AliquotError as error:
            return _answered(answer_format, dialect, Code.ERROR, str(error))

    def _judged(
        self, answer_format: PredicateFormat | None, asked: PredicateCall, pod: Pod, demand: Demand
    ) -> asgi.Response:
        node, dialect = asked.node.name, demand.dialect
        if why := self._plane.late.why_never(node, dialect):
            return _answered(answer_format, dialect.name, Code.UNRESOLVABLE, why)
        if node in self._cluster.claimed_by(demand):
            return _answered(answer_format, dialect.name, Code.SUCCESS)  # the claim is this pod's own
        later = not asked.task.needs().fits(asked.node.idle())
        assumed = self._assumed([asked.node], pod)[node]
        reason = assumed_pods.refusal(self._cluster, pod, demand, node, assumed, later=later)
        if reason is None:
            return _answered(answer_format, dialect.name, Code.SUCCESS)
        metrics.REFUSALS.labels(reason.name.lower()).inc()
        code = Code.UNRESOLVABLE if reason.is_hopeless else Code.UNSCHEDULABLE
        return _answered(
            answer_format, dialect.name, code, dialect.words_for(reason, self._cluster.cards(node), demand.request)
        )

    def no_predicate(self, why: str) -> asgi.Response:
        return asgi.json(predicate_answer(self._format, Code.ERROR, why))

    def _assumed(self, nodes: Sequence[NodeInfo], pod: Pod) -> dict[str, AssumedPods]:
        """Tasks by node that are missing from our cluster state; only they are worth decoding. Raises BadCall."""
        found = {node.name: self._unknown_tasks(node, pod) for node in nodes}
        _require_few(found)
        return {node: each.read() for node, each in found.items()}

    def _unknown_tasks(self, node: NodeInfo, pod: Pod) -> _UnknownTasks:
        found = _UnknownTasks()
        for task in (node.tasks or {}).values():
            is_known = self._cluster.ledger.entry(task.uid, node.name) is not None
            if task.uid == pod.metadata.uid:
                continue
            if task.status == Status.RELEASING:
                found.releasing.append(task.uid)
            elif task.status == Status.PIPELINED and not is_known:
                found.pipelined.append(task)
            elif task.status & _ALLOCATED and not is_known:
                found.allocated.append(task)
        return found

    # -- prioritize

    async def prioritize(self, call: asgi.Call) -> asgi.Response:
        try:
            asked = read(call.body, PrioritizeCall)
            if why := self._verbs.not_ready():
                raise Refused(why)
            dialect, scores = self._scores(asked.task.pod(), asked.nodes or [])
        except AliquotError as error:
            return _no_scores(str(error))
        metrics.DECISIONS.labels("vprioritize", dialect, "scored").inc()
        return asgi.json(scores_answer(scores), dialect=dialect)

    def _scores(self, pod: Pod, nodes: list[NodeInfo]) -> tuple[str, dict[str, float]]:
        """The pod's dialect, and the score of every node."""
        names = [node.name for node in nodes]
        try:
            demand = self._cluster.demand_of(pod)
        except BadDemand:
            demand = None
        if demand is None:
            return "", dict.fromkeys(names, 0.0)
        assumed = self._assumed(nodes, pod)
        scores = points(assumed_pods.standings(self._cluster, pod, demand, assumed)) * _PER_POINT
        return demand.dialect.name, dict(zip(assumed, scores.tolist(), strict=True))

    # -- reservations

    async def allocate(self, call: asgi.Call) -> asgi.Response:
        """Reserve the node of an Allocated task; a refusal makes Volcano take the node back. A Pipelined task waits for
        other pods to end, so they are no reason to refuse it. Any other status is outdated."""
        dialect = pod_name = node = ""
        try:
            task = read(call.body, EventCall).task
            if why := self._verbs.not_ready():
                raise Refused(why)
            if task.status & (Status.ALLOCATED | Status.PIPELINED):
                pod = task.pod()
                pod_name, node = pod.key, task.node
                demand = self._cluster.demand_of(pod)
                dialect = demand.dialect.name if demand else ""
                if task.status == Status.ALLOCATED and demand is not None:
                    if self._verbs.reserve(await self._verbs.asked_pod(pod), task.node):
                        access_log.log(call, "vallocate", pod_name, node, "reserved")
                elif demand is not None:
                    self._refuse_hopeless(pod, demand, task.node)
        except AliquotError as error:
            metrics.DECISIONS.labels("vallocate", dialect, "refused").inc()
            access_log.log(call, "vallocate", pod_name, node, "refused", str(error))
            return _event(str(error), dialect)
        metrics.DECISIONS.labels("vallocate", dialect, "reserved").inc()
        return _event("", dialect)

    def _refuse_hopeless(self, pod: Pod, demand: Demand, node: str) -> None:
        """Refuse a node where eviction cannot help: we cannot see this cycle's victims. Raises NoRoom."""
        reason = assumed_pods.refusal(self._cluster, pod, demand, node, AssumedPods())
        if reason is not None and reason.is_hopeless:
            raise NoRoom(demand.dialect.words_for(reason, self._cluster.cards(node), demand.request))

    async def deallocate(self, call: asgi.Call) -> asgi.Response:
        """Release a pod's reservation. A bound pod that is now evicted holds its cards until it ends."""
        pod_name = node = ""
        try:
            task = read(call.body, EventCall).task
            node = task.node
            if self._plane.reservations.nodes_of(task.uid, only=node):
                pod = task.pod()
                pod_name = pod.key
                if (await self._verbs.asked_pod(pod)).metadata.uid != task.uid:
                    raise BadCall("the task's UID differs from its pod's UID")
                self._plane.reservations.release(task.uid, only=node)
                access_log.log(call, "vdeallocate", pod_name, node, "released")
        except AliquotError as error:
            metrics.DECISIONS.labels("vdeallocate", "", "refused").inc()
            access_log.log(call, "vdeallocate", pod_name, node, "refused", str(error))
            return _event(str(error))
        metrics.DECISIONS.labels("vdeallocate", "", "released").inc()
        return _event("")


def _require_few(unknown: Mapping[str, _UnknownTasks]) -> None:
    """Limit the unknown tasks in a call, per node and in total. Raises BadCall."""
    counts = {node: len(found.allocated) + len(found.pipelined) for node, found in unknown.items()}
    for node, count in counts.items():
        if count > MAX_ASSUMED_PODS_OF_NODE:
            raise BadCall(f"node {node} has {count} tasks unknown to Aliquot; the limit is {MAX_ASSUMED_PODS_OF_NODE}")
    if (count := sum(counts.values())) > MAX_ASSUMED_PODS:
        raise BadCall(f"these nodes have {count} tasks unknown to Aliquot; the limit is {MAX_ASSUMED_PODS}")


def _answered(answer_format: PredicateFormat | None, dialect: str, code: Code, why: str = "") -> asgi.Response:
    outcome = {Code.SUCCESS: "fits", Code.ERROR: "fault"}.get(code, "fits nowhere")
    metrics.DECISIONS.labels("vpredicates", dialect, outcome).inc()
    return asgi.json(predicate_answer(answer_format, code, why), dialect=dialect)


def _no_scores(why: str) -> asgi.Response:
    metrics.DECISIONS.labels("vprioritize", "", "fault").inc()
    return asgi.json(scores_answer({}, why))


def _event(why: str, dialect: str = "") -> asgi.Response:
    return asgi.json(event_answer(why), dialect=dialect)
