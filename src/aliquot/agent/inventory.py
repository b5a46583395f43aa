"""The node's inventory and the labels of its cards, which the agent publishes on the Node object and keeps there."""

import asyncio
from collections.abc import Mapping
from typing import Any, NoReturn

import structlog

from aliquot.agent import node_labels
from aliquot.agent.node_cards import NodeCards
from aliquot.agent.written_on_change import write_on_change
from aliquot.clock import Clock
from aliquot.dialects import Dialects
from aliquot.kube import NODES, Client
from aliquot.kube.errors import Forbidden
from aliquot.model import Node
from aliquot.model.records import INVENTORY, write_inventory

_log = structlog.get_logger()
_PAUSE = 2.0


class Publisher:
    """Writes what differs, and again if somebody removed it, such as kubelet on a recreated Node."""

    def __init__(self, client: Client, cards: NodeCards, dialects: Dialects, clock: Clock) -> None:
        self._clock = clock
        self._dialects = dialects
        self._client = client
        self._cards = cards
        self._seen: Node | None = None
        self._changed = asyncio.Event()
        cards.changed.subscribe(lambda _: self._changed.set())

    def see(self, node: Node | None) -> None:
        self._seen = node
        self._changed.set()

    async def run(self) -> NoReturn:
        complaint = "cannot publish the inventory, retrying"
        await write_on_change(self._changed, self.publish, self._clock, pause=_PAUSE, complaint=complaint)

    async def publish(self) -> None:
        """Compare the Node once, and write what differs, in one patch. Raises KubeError."""
        node, cards = self._seen, self._cards.current
        if node is None:
            return
        wanted = {key: value for each in self._dialects.values() for key, value in each.card_labels(cards).items()}
        metadata = {"annotations": {}, **node_labels.changes(node, wanted)}
        record = write_inventory(cards)
        if node.metadata.annotations.get(INVENTORY) != record:
            metadata["annotations"][INVENTORY] = record
        if metadata["annotations"]:
            await self._patch(node, {"metadata": metadata})
            _log.info("published the inventory", node=node.key)

    async def _patch(self, node: Node, body: Mapping[str, Any]) -> None:
        try:
            await self._client.patch(NODES, node.key, body)
        except Forbidden:  # the originals' accounts may write to a Node through its status only
            await self._client.patch(NODES, node.key, body, part="status")
