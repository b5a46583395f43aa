"""Follows the health of the cards: readings, errors of the driver, and what people say, each as soon as it is known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

import structlog

from aliquot.agent.card_errors import CardErrors
from aliquot.agent.card_errors_file import CardErrorsFile
from aliquot.agent.card_health import CardHealth, CardState
from aliquot.agent.devices import CardError, Judgement, Machine, Verdict
from aliquot.agent.metrics import AgentMetrics
from aliquot.dialects.cordons import CORDON, names_of
from aliquot.model import Node, NodeGpus

_log = structlog.get_logger()


class HealthWatch:
    """`judge` says what follows from an error. `tell` gets the cards whenever something may have changed."""

    def __init__(
        self,
        judge: Callable[[int], Judgement],
        errors: CardErrors,
        machine: Machine,
        file: CardErrorsFile,
        metrics: AgentMetrics,
        tell: Callable[[Sequence[CardState]], None],
    ) -> None:
        self._errors = errors
        self._file = file
        self._metrics = metrics
        self._tell = tell
        self._health = CardHealth(judge, machine, file.read())
        self._unknown: frozenset[str] = frozenset()

    @property
    def machine(self) -> Machine:
        """What the driver shows, with the cards as the node publishes them."""
        return replace(self._health.machine, gpus=tuple(state.gpu for state in self._health.states()))

    def see_machine(self, machine: Machine | None) -> None:
        self._health.see_machine(machine)
        self._report()

    def see_node(self, node: Node) -> None:
        self._name_unknown(node.metadata.annotations)
        self._health.see_annotations(node.metadata.annotations)
        self._report()

    async def run(self) -> NoReturn:
        """Wait for errors of the driver."""
        self._report()
        while True:
            for error in await self._errors.wait():
                self._see_error(error)

    def _see_error(self, error: CardError) -> None:
        judgement = self._health.see_error(error)
        if judgement is None:
            _log.warning("an XID error of a card that this node does not have", uuid=error.uuid, xid=error.code)
            return
        self._metrics.count_xid(error)
        say = _log.info if judgement.verdict is Verdict.IGNORE else _log.warning
        say(
            "a card has an XID error",
            uuid=error.uuid,
            xid=error.code,
            means=judgement.meaning,
            verdict=judgement.verdict.value,
        )
        self._report()

    def _report(self) -> None:
        states = self._health.states()
        self._file.write(self._health.errors)
        self._metrics.cards = states
        self._tell(states)

    def _name_unknown(self, annotations: Mapping[str, str]) -> None:
        """Say once which annotations mean no card."""
        cards = NodeGpus("", self._health.machine.gpus, 1)
        known = {CORDON + name for gpu in cards.gpus for name in names_of(gpu, cards)}
        unknown = frozenset(key for key in annotations if key.startswith(CORDON)) - known
        for key in sorted(unknown - self._unknown):
            _log.warning("an annotation of the node names no card of it", annotation=key)
        self._unknown = unknown
