"""gpushare's own routes: filter, bind, inspect, version, as its extender answers them."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import structlog

import aliquot
from aliquot import faults, metrics
from aliquot.control import ControlPlane
from aliquot.doors import asgi
from aliquot.doors.extender import (
    BadCall,
    BindCall,
    FilterCall,
    filter_answer,
    filter_fault,
    read_bind,
    read_filter,
)
from aliquot.doors.forwarding import Forwarder
from aliquot.doors.metrics import timed
from aliquot.errors import AliquotError, BadDemand, Refused
from aliquot.kube import PODS, NotFound
from aliquot.ledger import Entry
from aliquot.model import Gpu, NodeGpus, Pod, Reason

_log = structlog.get_logger()
_PREFIX = "/gpushare-scheduler"


_REFUSALS = {reason: metrics.REFUSALS.labels(reason.name.lower()) for reason in Reason}


class GpuShareDoor:
    """With a forwarder, a server that does not hold the Lease passes decisions on to the one that does."""

    name = "gpushare"

    def __init__(self, plane: ControlPlane, forwarder: Forwarder | None = None) -> None:
        self._plane = plane
        self._books = plane.books
        self._forwarder = forwarder

    def routes(self) -> Mapping[tuple[str, str], asgi.Handler]:
        filter_, bind = timed("filter", self.filter, self._plane.clock), timed("bind", self.bind, self._plane.clock)
        if self._forwarder is not None:
            filter_ = self._forwarder.to_holder(self.name, "filter", filter_, _filter_fault)
            bind = self._forwarder.to_holder(self.name, "bind", bind, _bind_answer)
        return {
            ("POST", f"{_PREFIX}/filter"): filter_,
            ("POST", f"{_PREFIX}/bind"): bind,
            ("GET", f"{_PREFIX}/inspect"): self.inspect,
            ("GET", f"{_PREFIX}/inspect/*"): self.inspect_node,
            ("GET", "/version"): self.version,
        }

    def _out_of_step(self) -> str:
        """Before both mirrors are whole, a part that is held can look free."""
        missing = self._plane.out_of_step()
        return f"Aliquot is not in step with the API server: {'; '.join(missing)}" if missing else ""

    def _not_ready(self) -> str:
        """Showing needs a mirror, deciding also somebody who may commit."""
        return self._out_of_step() or self._plane.leadership.no_holder()

    # -- filter

    async def filter(self, call: asgi.Call) -> asgi.Answer:
        try:
            asked = read_filter(call.body)
        except BadCall as error:
            return self._fault(str(error))
        if why := self._not_ready():
            return self._fault(why)
        dialect, refused = self._refusals(asked)
        outcome = "fits" if len(refused) < len(asked.names) else "fits nowhere"
        metrics.DECISIONS.labels("filter", dialect, outcome).inc()
        return asgi.json(filter_answer(asked, refused), after=lambda: faults.reach("after-filter"))

    def _fault(self, why: str) -> asgi.Answer:
        metrics.DECISIONS.labels("filter", "", "fault").inc()
        return _filter_fault(why)

    def _refusals(self, asked: FilterCall) -> tuple[str, dict[str, str]]:
        """The pod's dialect, and why each refused node is refused. A bad demand is refused everywhere: an Error would
        be retried for ever."""
        try:
            demand = self._plane.books.demand_of(asked.pod)
        except BadDemand as error:
            metrics.REFUSALS.labels("bad_demand").inc(len(asked.names))
            return "", dict.fromkeys(asked.names, str(error))
        if demand is None:
            return "", {}
        words = {reason: demand.dialect.words(reason) for reason in Reason}
        refused = dict(self._books.judge(demand).refusals(asked.names))
        for node in self._books.claimed_by(asked.pod):
            refused.pop(node, None)  # its own claim, of a Binding without an answer, is no reason against it
        _count(refused.values())
        return demand.dialect.name, {name: words[reason] for name, reason in refused.items()}

    # -- bind

    async def bind(self, call: asgi.Call) -> asgi.Answer:
        """A refusal is a 200 with its text in `Error`: kube-scheduler throws the body of any other status away."""
        try:
            asked = read_bind(call.body)
            if why := self._not_ready():
                raise Refused(why)
            pod = await self._pod(asked)
            if self._plane.nodes.get(asked.node) is None:
                raise BadCall(f'node "{asked.node}" not found')
            await self._plane.committer.commit(pod, asked.node)
        except AliquotError as error:
            metrics.DECISIONS.labels("bind", "", "refused").inc()
            _log.warning("not bound", why=str(error))
            return _bind_answer(str(error))
        held = self._books.ledger.entry(asked.uid, asked.node)
        metrics.DECISIONS.labels("bind", held.placement.dialect if held else "", "bound").inc()
        return _bind_answer("")

    async def _pod(self, asked: BindCall) -> Pod:
        """The pod that is meant, from our mirror or, if that does not know it, from the API server."""
        pod = self._plane.pods.get(f"{asked.namespace}/{asked.name}")
        if pod is None or pod.metadata.uid != asked.uid:
            try:
                pod = await self._plane.client.get(PODS, asked.name, asked.namespace, timeout=self._plane.settings.look)
            except NotFound as error:
                raise BadCall(f'pods "{asked.name}" not found') from error
        if pod.metadata.uid != asked.uid:
            raise BadCall(
                f"The pod {asked.name} in ns {asked.namespace}'s uid is {pod.metadata.uid}, "
                f"and it's not equal with expected {asked.uid}"
            )
        return pod

    # -- inspect

    async def inspect(self, _: asgi.Call) -> asgi.Answer:
        """Every node with shared cards, by name."""
        if why := self._out_of_step():
            return asgi.json({"nodes": [], "error": why}, status=503)
        nodes = (self._books.cards(node.key) for node in self._plane.nodes.all())
        shown = sorted((cards for cards in nodes if cards.gpus), key=lambda cards: cards.node)
        return asgi.json({"nodes": [self._node(cards) for cards in shown]})

    async def inspect_node(self, call: asgi.Call) -> asgi.Answer:
        if why := self._out_of_step():
            return asgi.json({"nodes": [], "error": why}, status=503)
        if self._plane.nodes.get(call.tail) is None:
            return asgi.json({"nodes": [], "error": f'node "{call.tail}" not found'}, status=404)
        return asgi.json({"nodes": [self._node(self._books.cards(call.tail))]})

    def _node(self, cards: NodeGpus) -> dict[str, Any]:
        entries = self._books.ledger.entries(cards.node)
        devices = [self._device(cards, gpu, entries) for gpu in cards.gpus]
        return {
            "name": cards.node,
            "totalGPU": sum(device["totalGPU"] for device in devices),
            "usedGPU": sum(device["usedGPU"] for device in devices),
            "devs": devices,
        }

    def _device(self, cards: NodeGpus, gpu: Gpu, entries: list[Entry]) -> dict[str, Any]:
        holders = [entry for entry in entries if gpu.uuid in entry.charges]
        used = {entry.uid: entry.charges[gpu.uuid].mib // cards.unit_mib for entry in holders}
        return {
            "id": gpu.index,
            "totalGPU": cards.units(gpu),
            "usedGPU": sum(used.values()),
            "pods": [
                {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "usedGPU": used[uid]}
                for uid in used
                if (pod := self._plane.pod_by_uid(uid)) is not None and pod.spec.node_name
            ],
        }

    async def version(self, _: asgi.Call) -> asgi.Answer:
        return asgi.text(aliquot.__version__)


def _count(refusals: Iterable[Reason]) -> None:
    """In runs: thousands of nodes are refused in one answer, mostly for one reason, and to hash an Enum is slow."""
    for reason, run in groupby(refusals):
        _REFUSALS[reason].inc(len(list(run)))


def _filter_fault(why: str) -> asgi.Answer:
    return asgi.json(filter_fault(why))


def _bind_answer(why: str) -> asgi.Answer:
    return asgi.json({"Error": why})
