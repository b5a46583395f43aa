"""elastic-gpu-scheduler's routes, answered as its extender does: filter, priorities, bind, status, version."""

from collections.abc import Sequence
from typing import Any

import msgspec

import aliquot
from aliquot.compat import OURS, Compat
from aliquot.control import ControlPlane
from aliquot.dialects.elastic import Elastic
from aliquot.endpoints import asgi
from aliquot.endpoints.endpoint import Extender, Table, Wire
from aliquot.endpoints.forwarding import Forwarder
from aliquot.model import CORES, Gpu, NodeGpus

_PREFIX = "/scheduler"


class ElasticEndpoint:
    name = "elastic"

    def __init__(self, plane: ControlPlane, forwarder: Forwarder | None = None, compat: Compat = OURS) -> None:
        self._plane = plane
        self._cluster = plane.cluster
        dialect = plane.cluster.dialects[Elastic.name]
        assert isinstance(dialect, Elastic), "no other dialect can have its name"
        self._dialect = dialect
        self._extender = Extender(plane, self.name, forwarder, Wire(knows_unresolvable=False, compat=compat))

    def routes(self) -> Table:
        return {
            **self._extender.routes(_PREFIX, filter="filter", prioritize="priorities", bind="bind"),
            ("GET", f"{_PREFIX}/status"): self.status,
            ("POST", "/status"): self.old_status,
            ("GET", "/version"): asgi.OpenHandler(self.version),
        }

    async def status(self, _: asgi.Call) -> asgi.Response:
        """Return JSON in a JSON string, as the original nests it, with the same value for each resource."""
        if why := self._extender.verbs.out_of_sync():
            return asgi.json({"error": why}, status=503)
        shown = {cards.node: [self._card(cards, gpu) for gpu in gpus] for cards, gpus in self._shown()}
        resources = self._dialect.status_resources(self._plane.nodes.all())
        return asgi.json(dict.fromkeys(resources, msgspec.json.encode(shown).decode()))

    async def old_status(self, _: asgi.Call) -> asgi.Response:
        """Report the status like its first versions, in percent of a card."""
        if why := self._extender.verbs.out_of_sync():
            return asgi.json({"error": why}, status=503)
        return asgi.json({cards.node: self._in_percent(cards, gpus) for cards, gpus in self._shown()})

    def _shown(self) -> list[tuple[NodeGpus, Sequence[Gpu]]]:
        """The nodes with cards, sorted by name, and their cards. Omits unhealthy cards at the end: the original counts
        only allocatable cards."""
        nodes = (self._cluster.cards(node.key) for node in self._plane.nodes.all())
        offered = ((cards, _without_the_last_unhealthy(cards.gpus)) for cards in nodes)
        return sorted(((cards, gpus) for cards, gpus in offered if gpus), key=lambda shown: shown[0].node)

    def _card(self, cards: NodeGpus, gpu: Gpu) -> dict[str, int]:
        left = self._cluster.ledger.free(cards.node, gpu.uuid)
        return {
            "CoreAvailable": left.cores,
            "MemoryAvailable": left.mib,
            "CoreTotal": CORES,
            "MemoryTotal": gpu.mib,
        }

    def _in_percent(self, cards: NodeGpus, gpus: Sequence[Gpu]) -> dict[str, Any]:
        """Leave fields empty that only the original's memory could fill."""
        return {
            "Rater": {},
            "Name": cards.node,
            "GPUs": [
                {"Percent": self._percent_left(cards, gpu), "PercentTotal": CORES, "RemainLoad": 0} for gpu in gpus
            ],
            "PlanCache": {},
        }

    def _percent_left(self, cards: NodeGpus, gpu: Gpu) -> int:
        left = self._cluster.ledger.free(cards.node, gpu.uuid)
        return min(left.cores, left.mib * 100 // gpu.mib) if gpu.mib else left.cores

    async def version(self, _: asgi.Call) -> asgi.Response:
        return asgi.text(aliquot.__version__)


def _without_the_last_unhealthy(gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    count = max((place for place, gpu in enumerate(gpus, start=1) if gpu.healthy), default=0)
    return gpus[:count]
