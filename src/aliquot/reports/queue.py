"""Pods that wait for cards, in the order in which they get them: by priority, then by age."""

from collections.abc import Hashable, Iterable, Iterator
from itertools import groupby

import msgspec

from aliquot.clock import seconds_of
from aliquot.control.waiting.schedule import reason_on
from aliquot.dialects import Demand
from aliquot.engine import Effort
from aliquot.errors import BadDemand
from aliquot.model import Pod
from aliquot.model.pending_pod import PendingPod
from aliquot.reports.pods import pod_report
from aliquot.reports.report import Report
from aliquot.reports.scheduler_words import refusal_of_scheduler
from aliquot.reports.view import ClusterView
from aliquot.reports.why_waiting import LOOK_EFFORT, surroundings


class WaitingPod(Report, frozen=True, kw_only=True):
    namespace: str
    name: str
    scheduler: str
    priority: int
    position: int
    """Its place among the pods that wait for the same scheduler, from 1."""
    behind: str = ""
    """The pod directly before it, as namespace/name."""
    since: str
    waiting_seconds: float | None
    asks: str
    fits_on: str = ""
    """The node that Aliquot would choose now; empty if it fits nowhere, or if no scheduler may look at it yet."""
    why: str = ""
    """The cause that the server wrote on the pod, or its scheduler's words, or what is wrong with what it asks for."""


class QueueReport(Report, frozen=True, kw_only=True):
    pods: list[WaitingPod]


def queue_report(view: ClusterView, namespace: str = "") -> QueueReport:
    """All pods that wait, or those of a namespace. Their positions count the pods of all namespaces."""
    return QueueReport(pods=[pod for pod in queue_in_order(view, namespace) if pod is not None])


def queue_in_order(view: ClusterView, namespace: str = "") -> Iterator[WaitingPod | None]:
    """The same pod by pod, for a caller with other work in between. None stands for a pod of another namespace."""
    fit = _Fitting(view)
    waiting = (pod for pod in view.pods.values() if pod.waits or pod.spec.scheduling_gates)
    ordered = sorted(waiting, key=lambda pod: (pod.spec.scheduler_name, -pod.priority, _created(pod), pod.key))
    for scheduler, group in groupby(ordered, key=lambda pod: pod.spec.scheduler_name):
        yield from _queue(view, scheduler, group, fit, namespace)


def _created(pod: Pod) -> str:
    return pod.metadata.creation_timestamp or ""


def _queue(
    view: ClusterView, scheduler: str, pods: Iterable[Pod], fit: "_Fitting", namespace: str
) -> Iterator[WaitingPod | None]:
    before, position = "", 0
    for pod in pods:
        report = pod_report(view, pod)
        if report is None:
            continue
        position += 1
        if namespace not in ("", report.namespace):
            yield None
        else:
            created = seconds_of(_created(pod))
            yield WaitingPod(
                namespace=report.namespace,
                name=report.name,
                scheduler=scheduler,
                priority=report.priority,
                position=position,
                behind=before,
                since=_created(pod),
                waiting_seconds=None if created is None else round(view.now - created, 1),
                asks=report.asks,
                fits_on="" if report.trouble or pod.spec.scheduling_gates else fit.node_for(pod),
                why=report.trouble or _said(pod),
            )
        before = pod.key


def _said(pod: Pod) -> str:
    if pod.spec.scheduling_gates:
        return "it has scheduling gates"
    written = reason_on(pod)
    return (written.message if written else "") or refusal_of_scheduler(pod)


class _Fitting:
    """Whether pods fit now, by the same rules as `explain`. Pods that ask for the same are judged once."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._around = surroundings(view)
        self._open: dict[bytes, list[str]] = {}
        self._known: dict[Hashable, str] = {}

    def node_for(self, pod: Pod) -> str:
        try:
            demand = self._view.cluster.demand_of(pod)
        except BadDemand:
            return ""
        if demand is None:
            return ""
        full = self._view.in_full(pod)
        key = _shape(full, demand)
        if key not in self._known:
            self._known[key] = self._best(full, demand)
        return self._known[key]

    def _best(self, pod: PendingPod, demand: Demand) -> str:
        nodes, closed = self._view.nodes, self._around.closed_to(self._view.cluster, pod, demand)
        key = _choosy(pod)
        if key not in self._open:
            ruled_out = closed.ruled_out(nodes.values())
            self._open[key] = [name for name in nodes if name not in ruled_out]
        names = self._open[key]
        # with an effort of its own: a look at the queue takes nothing of the time that the pod has for its search
        judged = self._view.cluster.judge(demand, names, effort=Effort(LOOK_EFFORT))
        best = judged.best(names) or ""
        if best and closed.obstacles(nodes[best], fits=True):  # rarely, so the other nodes are only looked at then
            best = judged.best([name for name in names if not closed.obstacles(nodes[name], fits=True)]) or ""
        return best


def _choosy(pod: PendingPod) -> bytes:
    """What decides which nodes are open to a pod."""
    return msgspec.json.encode((pod.spec.node_selector, pod.spec.tolerations, pod.spec.affinity))


def _shape(pod: PendingPod, demand: Demand) -> Hashable:
    request = demand.request
    asked = tuple(
        (name, str(amount)) for container, _ in pod.containers() for name, amount in container.requests.items()
    )
    return (
        request.namespace,
        request.dialect,
        request.containers,
        request.together,
        request.priority,
        request.constraints,
        request.host,
        _choosy(pod),
        asked,
    )
