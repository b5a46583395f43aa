"""gpushare's routes, answered as its extender does: filter, bind, inspect, version; and prioritize, which it lacks."""

from typing import Any

import aliquot
from aliquot.compat import OURS, Compat
from aliquot.control import ControlPlane
from aliquot.endpoints import asgi
from aliquot.endpoints.endpoint import Extender, Table, Wire
from aliquot.endpoints.forwarding import Forwarder
from aliquot.ledger import Entry
from aliquot.model import Gpu, NodeGpus

_PREFIX = "/gpushare-scheduler"


class GpuShareEndpoint:
    name = "gpushare"

    def __init__(self, plane: ControlPlane, forwarder: Forwarder | None = None, compat: Compat = OURS) -> None:
        self._plane = plane
        self._cluster = plane.cluster
        wire = Wire(both_forms=True, null_items=True, every_score=False, compat=compat)
        self._extender = Extender(plane, self.name, forwarder, wire)
        self._verbs = self._extender.verbs

    def routes(self) -> Table:
        return {
            **self._extender.routes(_PREFIX, filter="filter", prioritize="prioritize", bind="bind"),
            ("GET", f"{_PREFIX}/inspect"): self.inspect,
            ("GET", f"{_PREFIX}/inspect/*"): self.inspect_node,
            ("GET", "/version"): asgi.OpenHandler(self.version),
        }

    # -- inspect

    async def inspect(self, _: asgi.Call) -> asgi.Response:
        """List every node with shared cards, by name."""
        if why := self._verbs.out_of_sync():
            return asgi.json({"nodes": [], "error": why}, status=503)
        nodes = (self._cluster.cards(node.key) for node in self._plane.nodes.all())
        shown = sorted((cards for cards in nodes if cards.gpus or cards.rest_mib), key=lambda cards: cards.node)
        return asgi.json({"nodes": [self._node(cards) for cards in shown]})

    async def inspect_node(self, call: asgi.Call) -> asgi.Response:
        if why := self._verbs.out_of_sync():
            return asgi.json({"nodes": [], "error": why}, status=503)
        if self._plane.nodes.get(call.tail) is None:
            return asgi.json({"nodes": [], "error": f'node "{call.tail}" not found'}, status=404)
        return asgi.json({"nodes": [self._node(self._cluster.cards(call.tail))]})

    def _node(self, cards: NodeGpus) -> dict[str, Any]:
        entries = self._cluster.ledger.entries(cards.node)
        devices = [self._device(cards, gpu, entries) for gpu in cards.gpus]
        return {
            "name": cards.node,
            "totalGPU": sum(device["totalGPU"] for device in devices) + cards.rest_mib // cards.unit_mib,
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

    async def version(self, _: asgi.Call) -> asgi.Response:
        return asgi.text(aliquot.__version__)
