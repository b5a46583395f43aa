"""The read endpoints: reports as JSON, each caller's by its own rights in Kubernetes. Any replica answers.

A report of a large cluster takes seconds of CPU. So reports are made one at a time and in short stretches, and the
calls of schedulers are answered in between.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import parse_qs

from msgspec import Raw, structs

from aliquot.clock import rfc3339
from aliquot.control import ControlPlane
from aliquot.control.inputs.past_load import HOUR, SourcedHistory
from aliquot.endpoints import asgi
from aliquot.endpoints.asgi import Caller
from aliquot.endpoints.own_rights import OwnRights
from aliquot.endpoints.places import Places
from aliquot.endpoints.stretches import Stretches
from aliquot.engine import Effort
from aliquot.errors import AliquotError, BadInput, Refused
from aliquot.kube import KubeError, NotFound, NotSent
from aliquot.kube.resources import PENDING_PODS
from aliquot.kube.reviews import Action
from aliquot.model import Pod
from aliquot.model.bounds import LONGEST_ID, MAX_HISTORIES_ASKED, MAX_HISTORIES_SHOWN, MAX_READS, MAX_READS_OF_CALLER
from aliquot.model.pending_pod import PendingPod
from aliquot.reports.causes import Verdict
from aliquot.reports.explained import Explained, explained_by, explained_without
from aliquot.reports.history import HistoryReport, card_history, pod_history, pods_in_order
from aliquot.reports.nodes import NodeReport, NodesReport, node_report
from aliquot.reports.of_plane import surroundings_of, view_of_plane
from aliquot.reports.pods import PodReport, PodsReport, pod_report
from aliquot.reports.queue import QueueReport, WaitingPod, queue_in_order
from aliquot.reports.quota import QuotaReport, quotas_in_order
from aliquot.reports.report import Report
from aliquot.reports.view import ClusterView
from aliquot.reports.waste import WastefulPod, WasteReport, total_waste, wasteful_pod
from aliquot.reports.why_waiting import without_engine

PREFIX = "/v1"
_STRETCH_SECONDS = 0.01
_PATIENCE_SECONDS = 10.0
"""How long one call asks Prometheus."""
_YEAR_SECONDS = 366 * 86400.0
_LIST_NODES = Action("list", "nodes")
_LIST_PODS = Action("list", "pods")
_HIDDEN = "a pod of another namespace"
_QUOTA_TROUBLE = "the newest quotas cannot be used; ask your cluster's administrator"

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


class _Withheld(AliquotError):
    """The caller lacks a right."""


class _Malformed(AliquotError):
    """The query cannot be read."""


class _Unknown(AliquotError):
    """There is no such object."""


@dataclass(frozen=True)
class _Asked:
    """What a call may see: the pods of `namespace`, or of all namespaces if it is empty."""

    caller: Caller
    namespace: str
    sees_all: bool
    node: str
    seconds: float = HOUR
    """Of the past."""
    pod: str = ""
    """The only one whose history is meant."""

    def may_read(self, namespace: str) -> bool:
        return self.sees_all or namespace == self.namespace


class ReadApi:
    def __init__(self, plane: ControlPlane, rights: OwnRights, *, most_histories: int = MAX_HISTORIES_SHOWN) -> None:
        self._plane = plane
        self._rights = rights
        self._most_histories = most_histories
        self._turn = asyncio.Lock()
        self._places = Places(MAX_READS, MAX_READS_OF_CALLER)

    def routes(self) -> dict[tuple[str, str], asgi.Handler]:
        reports: dict[str, Callable[[_Asked], Awaitable[Report]]] = {
            "nodes": self._nodes,
            "pods": self._pods,
            "queue": self._queue,
            "waste": self._waste,
            "quota": self._quota,
            "history": self._history,
        }
        routes: dict[tuple[str, str], asgi.Handler] = {
            ("GET", f"{PREFIX}/{name}"): self._answering(report) for name, report in reports.items()
        }
        return {**routes, ("GET", f"{PREFIX}/explain/*/*"): self._handler(self._explained)}

    def _answering(self, report: Callable[[_Asked], Awaitable[Report]]) -> asgi.Handler:
        async def made(call: asgi.Call) -> Report:
            asked = await self._asked(call, report)
            waits_for_prometheus = report == self._history and self._plane.past_load.asks_prometheus(asked.seconds)
            async with nullcontext() if waits_for_prometheus else self._turn:
                return await report(asked)

        return self._handler(made)

    def _handler(self, make: Callable[[asgi.Call], Awaitable[Report]]) -> asgi.Handler:
        async def answer(call: asgi.Call) -> asgi.Response:
            if trouble := self._plane.out_of_sync():
                return _error("; ".join(trouble), 503)
            try:
                with self._places.place_for(call):
                    return await self._encoded(await make(call))
            except _Withheld as error:
                return _error(str(error), 403)
            except _Malformed as error:
                return _error(str(error), 400)
            except (_Unknown, BadInput) as error:
                return _error(str(error), 404)
            except (Refused, KubeError) as error:
                return _error(str(error), 503)

        return asgi.OwnRightsHandler(answer)

    # -- rights

    async def _asked(self, call: asgi.Call, report: Callable[[_Asked], Awaitable[Report]]) -> _Asked:
        """Raises _Withheld, _Malformed, _Unknown and Refused."""
        query = {key: values[-1] for key, values in parse_qs(call.query).items()}
        namespace = query.get("namespace", "")
        node = query.get("node", "") if report == self._history else ""  # a right to see nodes opens no other report
        sees_all = await self._rights.allow(call.caller, _LIST_PODS)
        if node:
            await self._require_node(call.caller, node)
        elif report == self._nodes:
            await self._require(call.caller, _LIST_NODES, "list nodes")
        elif not sees_all:
            if not namespace:
                raise _Withheld(f"{call.caller.name} may not list the pods of all namespaces; add ?namespace=NAME")
            await self._require_namespace(call.caller, namespace)
        pod = query.get("pod", "")
        if pod and not namespace:
            raise _Malformed("?pod= needs ?namespace=, too")
        return _Asked(call.caller, namespace, sees_all, node, _seconds(query.get("seconds", "")), pod)

    async def _require_namespace(self, caller: Caller, namespace: str) -> None:
        if len(namespace) > LONGEST_ID:  # the answer would be remembered, with the name
            raise _Unknown(f"a namespace has at most {LONGEST_ID} characters")
        await self._require(caller, replace(_LIST_PODS, namespace=namespace), f"list the pods of namespace {namespace}")

    async def _require_node(self, caller: Caller, node: str) -> None:
        await self._require(caller, _LIST_NODES, "list nodes")
        if self._plane.nodes.get(node) is None:
            raise _Unknown(f"there is no node {node}")

    async def _require(self, caller: Caller, action: Action, what: str) -> None:
        if not await self._rights.allow(caller, action):
            raise _Withheld(f"{caller.name} may not {what}")

    # -- reports

    async def _nodes(self, asked: _Asked) -> NodesReport:
        view = view_of_plane(self._plane)
        found = await self._in_stretches(sorted(view.nodes), lambda name: node_report(view, name))
        shown = [report for report in found if report.cards or report.trouble]
        return NodesReport(nodes=[_without_names(report, asked) for report in shown])

    async def _pods(self, asked: _Asked) -> PodsReport:
        view = view_of_plane(self._plane)
        pods = sorted(
            (pod for pod in view.pods.values() if not pod.ended and asked.namespace in ("", pod.metadata.namespace)),
            key=lambda pod: pod.key,
        )
        found = await self._in_stretches(pods, lambda pod: pod_report(view, pod))
        return PodsReport(pods=[report for report in found if report is not None])

    async def _queue(self, asked: _Asked) -> QueueReport:
        queue = queue_in_order(view_of_plane(self._plane), asked.namespace)
        found = await self._in_stretches(self._in_trials(queue), lambda pod: pod and _without_neighbour(pod, asked))
        return QueueReport(pods=[pod for pod in found if pod is not None])

    def _in_trials(self, items: Iterator[_Item]) -> Iterator[_Item]:
        """Each made in a trial of its own: nothing of it is recorded as a decision."""
        while True:
            with self._plane.cluster.trial():
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item

    async def _waste(self, asked: _Asked) -> WasteReport:
        view, idle_since = view_of_plane(self._plane), self._plane.heartbeats.history.idle_since

        def wasted(pod: PodReport) -> WastefulPod:
            since = idle_since(pod.uid)
            return wasteful_pod(view, pod, "" if since is None else rfc3339(int(since * 1e9)))

        holding = [pod for pod in (await self._pods(asked)).pods if pod.cards]
        return total_waste(await self._in_stretches(holding, wasted))

    async def _quota(self, asked: _Asked) -> QuotaReport:
        trouble = self._plane.cluster.quotas.trouble
        if trouble and not asked.sees_all:  # it quotes the map, and so other namespaces
            trouble = _QUOTA_TROUBLE
        found = quotas_in_order(view_of_plane(self._plane), asked.namespace)
        return QuotaReport(trouble=trouble, namespaces=await self._in_stretches(found, lambda quota: quota))

    async def _history(self, asked: _Asked) -> HistoryReport:
        view, past, notes = view_of_plane(self._plane), self._plane.past_load, list[str]()
        if asked.node:
            gpus = view.cluster.cards(asked.node).gpus
            cards = await self._known(gpus, lambda gpu, seconds: past.card(gpu.uuid, seconds), asked.seconds)
            found = [card_history(asked.node, gpu.uuid, known) for gpu, known in cards]
        else:
            listed, most = self._with_past(view, asked)
            listed = [pod for pod in listed if asked.pod in ("", pod.metadata.name)]
            pods = await self._known(listed[:most], lambda pod, span: past.pod(pod.metadata.uid, span), asked.seconds)
            found = await self._in_stretches(pods, lambda known: pod_history(*known))
            if len(listed) > most:
                notes.append(f"pods with a history that are not shown: {len(listed) - most}; ask for a namespace")
        if asked.seconds > HOUR and any(each.source != "prometheus" for each in found):
            notes.append("where the source is memory, only the last hour is known")
        return HistoryReport(histories=found, note="; ".join(notes))

    def _with_past(self, view: ClusterView, asked: _Asked) -> tuple[list[Pod], int]:
        """The pods that may have a history, and how many of them to show. Prometheus remembers what we forgot."""
        if self._plane.past_load.asks_prometheus(asked.seconds):
            holds = self._plane.cluster.ledger.nodes_of
            return pods_in_order(view, lambda uid: bool(holds(uid)), asked.namespace), MAX_HISTORIES_ASKED
        return pods_in_order(view, self._plane.heartbeats.history.has_pod, asked.namespace), self._most_histories

    async def _known(
        self, items: Iterable[_Item], ask: Callable[[_Item, float], Awaitable[SourcedHistory | None]], seconds: float
    ) -> list[tuple[_Item, SourcedHistory]]:
        """What is known of each for the last so many seconds. Once Prometheus has failed or taken long, memory answers
        for the rest."""
        past, clock, found = self._plane.past_load, self._plane.clock, list[tuple[_Item, SourcedHistory]]()
        began = clock.monotonic()
        async for item in self._with_pauses(items):
            if (known := await ask(item, seconds)) is not None:
                found.append((item, known))
            if past.trouble or clock.monotonic() - began > _PATIENCE_SECONDS:
                seconds = min(seconds, HOUR)
        return found

    async def _in_stretches(self, items: Iterable[_Item], make: Callable[[_Item], _Made]) -> list[_Made]:
        return [make(item) async for item in self._with_pauses(items)]

    async def _with_pauses(self, items: Iterable[_Item]) -> AsyncIterator[_Item]:
        """Schedulers are answered in the pauses."""
        stretches = Stretches(self._plane.clock, _STRETCH_SECONDS)
        for item in items:
            yield item
            await stretches.pause_if_due()

    async def _encoded(self, report: Report) -> asgi.Response:
        """In stretches, too. A thread would not help: whoever encodes holds the interpreter's lock."""
        parts: dict[str, Any] = {}
        for field in structs.fields(report):
            value = getattr(report, field.name)
            if isinstance(value, list):
                value = await self._in_stretches(value, lambda item: Raw(asgi.json(item).body))
            parts[field.encode_name] = value
        return asgi.json(parts)

    # -- explain

    async def _explained(self, call: asgi.Call) -> Explained:
        """Raises _Withheld, _Unknown, Refused and KubeError."""
        namespace, _, name = call.tail.partition("/")
        try:
            PENDING_PODS.path(namespace, name)
        except NotSent as error:
            raise _Unknown(str(error)) from error
        node = parse_qs(call.query).get("node", [""])[-1]
        sees_all = await self._rights.allow(call.caller, _LIST_PODS)
        if not sees_all:
            await self._require_namespace(call.caller, namespace)
        if node:
            await self._require_node(call.caller, node)
        asked = _Asked(call.caller, namespace, sees_all, node)
        try:
            pod = await self._plane.client.get(PENDING_PODS, name, namespace)
        except NotFound as error:
            raise _Unknown(f"there is no pod {name} in namespace {namespace}") from error
        async with self._turn:
            return await self._explanation(pod, asked)

    async def _explanation(self, pod: PendingPod, asked: _Asked) -> Explained:
        cluster, around = self._plane.cluster, surroundings_of(self._plane)
        found = without_engine(cluster, pod, around)
        if isinstance(found, Verdict):
            return explained_without(cluster, pod, found)
        ruled_out = around.closed_to(cluster, pod, found).ruled_out(around.nodes.values())
        told = await asyncio.to_thread(cluster.explaining(found, ruled_out), Effort())
        return explained_by(cluster, pod, around, found, told, asked.may_read, node=asked.node)


def _seconds(text: str) -> float:
    """Raises _Malformed."""
    if not text:
        return HOUR
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _YEAR_SECONDS:
        raise _Malformed(f"?seconds= takes a number above 0, at most {_YEAR_SECONDS:.0f}")
    return seconds


def _without_names(report: NodeReport, asked: _Asked) -> NodeReport:
    """Without the pods that the caller may not read."""
    if asked.sees_all:
        return report
    return structs.replace(report, cards=[structs.replace(card, pods=()) for card in report.cards])


def _without_neighbour(pod: WaitingPod, asked: _Asked) -> WaitingPod:
    """Without the name of the pod before it, if the caller may not read that."""
    if not pod.behind or asked.may_read(pod.behind.partition("/")[0]):
        return pod
    return structs.replace(pod, behind=_HIDDEN)


def _error(why: str, status: int) -> asgi.Response:
    return asgi.json({"error": why}, status)
