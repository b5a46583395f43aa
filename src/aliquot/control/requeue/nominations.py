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
class _Nomination:
    request: Request
    placement: Placement
    until: float


class Nominations:
    def __init__(self, clock: Clock, ledger: Ledger) -> None:
        self._clock = clock
        self._ledger = ledger
        self._nominations: dict[str, _Nomination] = {}
        self.ended = 0
        """Increases with each part that is free for others again."""

    def __len__(self) -> int:
        return len(self._nominations)

    def add(self, request: Request, placement: Placement) -> None:
        self._nominations[request.uid] = _Nomination(request, placement, self._clock.monotonic() + _SECONDS)

    def bound(self, uid: str) -> None:
        """The pod is bound."""
        self._nominations.pop(uid, None)

    def end(self, uid: str) -> bool:
        """End a nomination without a Binding. Returns whether it existed."""
        existed = self._nominations.pop(uid, None) is not None
        self.ended += existed
        return existed

    def tidy(self) -> None:
        """End expired nominations, and drop those of pods that the ledger has now."""
        now = self._clock.monotonic()
        for uid, nomination in list(self._nominations.items()):
            if self._ledger.nodes_of(uid):
                self.bound(uid)
            elif nomination.until <= now:
                self.end(uid)

    def ends(self) -> Iterable[float]:
        return (nomination.until for nomination in self._nominations.values())

    def take(self, trial: Trial) -> None:
        for nomination in self._nominations.values():
            if not self._ledger.nodes_of(nomination.request.uid):
                trial.take(nomination.request, nomination.placement)
