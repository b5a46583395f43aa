"""elastic-gpu-scheduler's own routes: filter, priorities, bind, status, version, as its extender answers them."""

from typing import Any

import msgspec

import aliquot
from aliquot.compat import OURS, Compat
from aliquot.control import ControlPlane
from aliquot.doors import asgi
from aliquot.doors.door import Extender, Table, Wire
from aliquot.doors.forwarding import Forwarder
from aliquot.model import CORES, Gpu, NodeGpus

_PREFIX = "/scheduler"
_KEYS = ("elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory")
"""Under which the status is told, twice the same."""


class ElasticDoor:
    name = "elastic"

    def __init__(self, plane: ControlPlane, forwarder: Forwarder | None = None, compat: Compat = OURS) -> None:
        self._plane = plane
        self._books = plane.books
        self._extender = Extender(plane, self.name, forwarder, Wire(compat=compat))

    def routes(self) -> Table:
        return {
            **self._extender.routes(_PREFIX, filter="filter", prioritize="priorities", bind="bind"),
            ("GET", f"{_PREFIX}/status"): self.status,
            ("POST", "/status"): self.old_status,
            ("GET", "/version"): asgi.Open(self.version),
        }

    async def status(self, _: asgi.Call) -> asgi.Answer:
        """JSON in a string in JSON, as the original nests it."""
        if why := self._extender.verbs.out_of_step():
            return asgi.json({"error": why}, status=503)
        shown = {cards.node: [self._card(cards, gpu) for gpu in cards.gpus] for cards in self._shown()}
        return asgi.json(dict.fromkeys(_KEYS, msgspec.json.encode(shown).decode()))

    async def old_status(self, _: asgi.Call) -> asgi.Answer:
        """As its first versions told it, in percent of a card."""
        if why := self._extender.verbs.out_of_step():
            return asgi.json({"error": why}, status=503)
        return asgi.json({cards.node: self._in_percent(cards) for cards in self._shown()})

    def _shown(self) -> list[NodeGpus]:
        """The nodes with cards, by name."""
        nodes = (self._books.cards(node.key) for node in self._plane.nodes.all())
        return sorted((cards for cards in nodes if cards.gpus), key=lambda cards: cards.node)

    def _card(self, cards: NodeGpus, gpu: Gpu) -> dict[str, int]:
        left = self._books.ledger.free(cards.node, gpu.uuid)
        return {
            "CoreAvailable": left.cores,
            "MemoryAvailable": left.mib,
            "CoreTotal": CORES,
            "MemoryTotal": gpu.mib,
        }

    def _in_percent(self, cards: NodeGpus) -> dict[str, Any]:
        """What only the original's own memory had is there, and empty."""
        return {
            "Rater": {},
            "Name": cards.node,
            "GPUs": [
                {"Percent": self._percent_left(cards, gpu), "PercentTotal": CORES, "RemainLoad": 0}
                for gpu in cards.gpus
            ],
            "PlanCache": {},
        }

    def _percent_left(self, cards: NodeGpus, gpu: Gpu) -> int:
        left = self._books.ledger.free(cards.node, gpu.uuid)
        return min(left.cores, left.mib * 100 // max(1, gpu.mib))

    async def version(self, _: asgi.Call) -> asgi.Answer:
        return asgi.text(aliquot.__version__)
