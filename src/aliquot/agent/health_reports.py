"""Tells people about the health of cards: a condition on the Node, and events about the Node and about pods."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

from aliquot.agent.agent_events import LONGEST_MESSAGE, AgentEvents
from aliquot.agent.card_health import CardState
from aliquot.agent.node_conditions import condition_of, write_condition
from aliquot.agent.written_on_change import write_on_change
from aliquot.clock import Clock
from aliquot.kube import Client
from aliquot.model import Node, Pod
from aliquot.model.admission import CARDS_HEALTHY

_PAUSE = 10.0

UNHEALTHY, HEALTHY = "CardUnhealthy", "CardHealthy"
CORDONED, UNCORDONED = "CardCordoned", "CardUncordoned"

_News = tuple[Node | Pod, str, str, str]
"""Subject, kind, reason and message of an event."""


class HealthReports:
    """`pods_on` returns the pods that hold a part of a card."""

    def __init__(
        self, client: Client, clock: Clock, pods_on: Callable[[str], Iterable[Pod]], events: AgentEvents
    ) -> None:
        self._client = client
        self._clock = clock
        self._pods_on = pods_on
        self._events = events
        self._node: Node | None = None
        self._states: Sequence[CardState] = ()
        self._told: Mapping[str, CardState] = {}
        """What the events have said of each card, by uuid."""
        self._left_out: Mapping[int, str] = {}
        self._told_left_out: Mapping[int, str] = {}
        self._summary: object = None
        self._changed = asyncio.Event()

    def see_node(self, node: Node | None) -> None:
        self._node = node
        self._changed.set()

    def see(self, states: Sequence[CardState], left_out: Mapping[int, str]) -> None:
        """The cards as they are now, and why others are left out, by index."""
        self._states, self._left_out = states, left_out
        self._changed.set()

    async def run(self) -> NoReturn:
        complaint = "cannot write the condition of the node, retrying"
        await write_on_change(self._changed, self.report, self._clock, pause=_PAUSE, complaint=complaint)

    async def report(self) -> None:
        """Write what is new. Raises KubeError if the condition cannot be written."""
        node, states, left_out = self._node, self._states, self._left_out
        if node is None or not states:
            return
        news = [each for state in states for each in self._news(node, state)]
        unread = [_unread(index, why) for index, why in left_out.items() if index not in self._told_left_out]
        news += [(node, "Warning", UNHEALTHY, f"{text}, so no container starts on it") for text in unread]
        self._told, self._told_left_out = {state.gpu.uuid: state for state in states}, left_out
        for subject, kind, reason, message in news:
            await self._events.write(subject, reason, message, kind=kind)
        await self._write_condition(node, states, left_out)

    async def _write_condition(self, node: Node, states: Sequence[CardState], left_out: Mapping[int, str]) -> None:
        """Numbers in a text, such as a temperature, change too often to write each of them."""
        wanted = condition(states, left_out)
        summary = [(bool(state.fault), bool(state.cordon)) for state in states], frozenset(left_out)
        known = condition_of(node, CARDS_HEALTHY)
        turns = known is None or known.status != wanted["status"]
        if turns or (summary != self._summary and known is not None and known.message != wanted["message"]):
            self._node = await write_condition(self._client, self._clock, node, wanted)
        self._summary = summary

    def _news(self, node: Node, state: CardState) -> Iterator[_News]:
        """What has changed for the worse or the better. A card of which nothing was told yet was good."""
        before = self._told.get(state.gpu.uuid) or CardState(state.gpu)
        if state.fault and not before.fault:
            yield node, "Warning", UNHEALTHY, f"{state} is unhealthy, so no container starts on it: {state.fault}"
            what = "The pod goes on as long as its program can; delete it if the card does not return"
            for pod in self._pods_on(state.gpu.uuid):
                yield pod, "Warning", UNHEALTHY, f"{state} is unhealthy: {state.fault}. {what}"
        if before.fault and not state.fault:
            yield node, "Normal", HEALTHY, f"{state} is healthy again"
        if state.cordon and not before.cordon:
            yield node, "Warning", CORDONED, f"{state} takes no new pods: {state.cordon}"
        if before.cordon and not state.cordon:
            yield node, "Normal", UNCORDONED, f"{state} takes new pods again"


def condition(states: Sequence[CardState], left_out: Mapping[int, str]) -> dict[str, str]:
    """The condition of a Node with these cards, and with others that have never answered."""
    unhealthy = [f"{state}: {state.fault}" for state in states if state.fault]
    unhealthy += [_unread(index, why) for index, why in sorted(left_out.items())]
    cordoned = [f"{state} is cordoned: {state.cordon}" for state in states if state.cordon]
    count = len(states) + len(left_out)
    good = f"{count - len(unhealthy)} of {count} cards are healthy"
    reason = "CardsUnhealthy" if unhealthy else "CardsCordoned" if cordoned else "CardsHealthy"
    return {
        "type": CARDS_HEALTHY,
        "status": "False" if unhealthy else "True",
        "reason": reason,
        "message": "; ".join([good, *unhealthy, *cordoned])[:LONGEST_MESSAGE],
    }


def _unread(index: int, why: str) -> str:
    return f"card {index} has not answered since the agent started: {why}"
