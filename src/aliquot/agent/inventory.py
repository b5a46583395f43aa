"""The node's inventory, which the agent publishes on the Node object and keeps there."""

import asyncio

import structlog

from aliquot.agent.node_cards import NodeCards
from aliquot.clock import Clock
from aliquot.kube import NODES, Client, KubeError
from aliquot.model import Node
from aliquot.model.records import INVENTORY, write_inventory

_log = structlog.get_logger()
_PAUSE = 2.0


class Publisher:
    """Writes the inventory if it differs, and again if somebody removed it, such as kubelet on a recreated Node."""

    def __init__(self, client: Client, cards: NodeCards, clock: Clock) -> None:
        self._clock = clock
        self._client = client
        self._cards = cards
        self._seen: Node | None = None
        self._changed = asyncio.Event()
        cards.changed.subscribe(lambda _: self._changed.set())

    def see(self, node: Node | None) -> None:
        self._seen = node
        self._changed.set()

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.publish()
            except KubeError as error:
                _log.warning("cannot publish the inventory, retrying", error=str(error))
                await self._clock.sleep(_PAUSE)
                self._changed.set()

    async def publish(self) -> None:
        """Compare the Node once, and write the inventory if needed. Raises KubeError."""
        node, record = self._seen, write_inventory(self._cards.current)
        if node is not None and node.metadata.annotations.get(INVENTORY) != record:
            await self._client.patch(NODES, node.key, {"metadata": {"annotations": {INVENTORY: record}}})
            _log.info("published the inventory", node=node.key)
