"""Whom we told kube-scheduler to evict, and for which pod.

kube-scheduler sees its victims go before our mirror does. If we refused the pod that preempted them then,
kube-scheduler would preempt on another node as well. So the victims count as gone for that pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aliquot.clock import Clock
from aliquot.model.bounds import MOST_PREEMPTIONS, MOST_UNKNOWN_PREEMPTIONS

_SECONDS = 300.0
"""Longer than victims take to end; kube-scheduler looks at every pod again after as much time."""


@dataclass(frozen=True, slots=True)
class _Named:
    victims: dict[str, frozenset[str]]
    until: float


class Preemptions:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, _Named] = {}
        self._unknown: dict[str, _Named] = {}

    def __len__(self) -> int:
        return len(self._known) + len(self._unknown)

    def name(self, uid: str, victims: Mapping[str, Sequence[str]], *, is_known: bool) -> None:
        """The victims by node, as they were last named for a pod; kube-scheduler takes those of one node."""
        before = self.victims_of(uid)
        self.forget(uid)
        named = {**before, **{node: frozenset(uids) for node, uids in victims.items()}}
        place, most = (self._known, MOST_PREEMPTIONS) if is_known else (self._unknown, MOST_UNKNOWN_PREEMPTIONS)
        if named:
            place[uid] = _Named(named, self._clock.monotonic() + _SECONDS)
        if len(place) > most:
            del place[next(iter(place))]

    def victims_of(self, uid: str) -> Mapping[str, frozenset[str]]:
        """By node; empty for a pod for which we named none."""
        named = self._named(uid)
        if named is not None and named.until <= self._clock.monotonic():
            self.forget(uid)
            named = None
        return named.victims if named is not None else {}

    def stay(self, uid: str, node: str) -> None:
        """The victims of a node were not evicted."""
        if (named := self._named(uid)) is not None:
            named.victims.pop(node, None)

    def forget(self, uid: str) -> None:
        self._known.pop(uid, None)
        self._unknown.pop(uid, None)

    def _named(self, uid: str) -> _Named | None:
        return self._known.get(uid) or self._unknown.get(uid)
