"""Tells people whether containers can get cards past this agent: a condition on the Node, and an event.

The agent cannot prevent it. A container that asks for no card is none of its business, and the container runtime asks
nobody.
"""

import asyncio
from collections.abc import Sequence
from typing import NoReturn

from aliquot.agent.agent_events import LONGEST_MESSAGE, AgentEvents
from aliquot.agent.devices import DeviceSource, OpenWay
from aliquot.agent.node_conditions import condition_of, write_condition
from aliquot.agent.written_on_change import write_on_change
from aliquot.clock import Clock
from aliquot.kube import Client
from aliquot.model import Node
from aliquot.model.admission import CARDS_GUARDED

_PAUSE = 10.0
OPEN = "CardsOpen"


class GuardReport:
    def __init__(self, client: Client, clock: Clock, devices: DeviceSource, events: AgentEvents) -> None:
        self._client = client
        self._clock = clock
        self._devices = devices
        self._events = events
        self._node: Node | None = None
        self._changed = asyncio.Event()

    def see_node(self, node: Node) -> None:
        self._node = node
        self._changed.set()

    async def run(self) -> NoReturn:
        complaint = "cannot write on the node whether its cards are guarded, retrying"
        await write_on_change(self._changed, self.report, self._clock, pause=_PAUSE, complaint=complaint)

    async def report(self) -> None:
        """Write what is new. Raises KubeError if the condition cannot be written."""
        node = self._node
        if node is None:
            return
        wanted, known = condition(self._devices.open_ways), condition_of(node, CARDS_GUARDED)
        if known is not None and (known.status, known.message) == (wanted["status"], wanted["message"]):
            return
        self._node = await write_condition(self._client, self._clock, node, wanted)
        if wanted["reason"] == OPEN:
            await self._events.write(node, OPEN, wanted["message"])


def condition(ways: Sequence[OpenWay] | None) -> dict[str, str]:
    """The condition of a Node on which these ways are open."""
    if ways is None:
        unknown = "the container runtime could not be asked whether it gives cards by itself"
        return {"type": CARDS_GUARDED, "status": "Unknown", "reason": "RuntimeUnknown", "message": unknown}
    if not ways:
        closed = "the container runtime gives no card to a container that asks for none"
        return {"type": CARDS_GUARDED, "status": "True", "reason": "CardsGuarded", "message": closed}
    message = "; ".join(f"{way.who}: {way.remedy}" for way in ways)[:LONGEST_MESSAGE]
    return {"type": CARDS_GUARDED, "status": "False", "reason": OPEN, "message": message}
