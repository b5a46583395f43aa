"""Nominations: parts expected by requeued pods. Other pods cannot get them meanwhile."""

from collections.abc import Iterable
from dataclasses import dataclass

from aliquot.clock import Clock
from aliquot.control.state.trial import Trial
from aliquot.ledger import Ledger
from aliquot.model import Placement, Request

_SECONDS = 10.0
"""A busy kube-scheduler may need this long to retry and to bind."""


@dataclass(frozen=True, slots=True)
class _Promise:
    request: Request
    placement: Placement
    until: float


class Nominations:
    def __init__(self, clock: Clock, ledger: Ledger) -> None:
        self._clock = clock
        self._ledger = ledger
        self._open: dict[str, _Promise] = {}
        self.broken = 0
        """Increases with each part that is free for others again."""

    def __len__(self) -> int:
        return len(self._open)

    def give(self, request: Request, placement: Placement) -> None:
        self._open[request.uid] = _Promise(request, placement, self._clock.monotonic() + _SECONDS)

    def kept(self, uid: str) -> None:
        """The pod is bound."""
        self._open.pop(uid, None)

    def end(self, uid: str) -> bool:
        """End a nomination without a Binding. Returns whether it existed."""
        was_open = self._open.pop(uid, None) is not None
        self.broken += was_open
        return was_open

    def tidy(self) -> None:
        """End expired nominations, and drop those of pods that the ledger has now."""
        now = self._clock.monotonic()
        for uid, promise in list(self._open.items()):
            if self._ledger.nodes_of(uid):
                self.kept(uid)
            elif promise.until <= now:
                self.end(uid)

    def ends(self) -> Iterable[float]:
        return (promise.until for promise in self._open.values())

    def take(self, trial: Trial) -> None:
        for promise in self._open.values():
            if not self._ledger.nodes_of(promise.request.uid):
                trial.take(promise.request, promise.placement)
