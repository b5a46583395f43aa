"""Victims that we nominated for kube-scheduler to evict, by preempting pod.

kube-scheduler sees its victims go before our informer cache does. If we refused the preempting pod then, kube-scheduler
would preempt on another node as well. So the victims count as gone for that pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aliquot.clock import Clock
from aliquot.control.state.bounded_map import BoundedMap
from aliquot.model.bounds import MAX_PREEMPTIONS, MAX_PREEMPTIONS_OF_NAMESPACE, MAX_UNKNOWN_PREEMPTIONS

_SECONDS = 300.0
"""Longer than victims take to end. kube-scheduler retries every pod after the same time."""


@dataclass(frozen=True, slots=True)
class _Named:
    victims: dict[str, frozenset[str]]
    asked: int
    until: float


class NominatedVictims:
    """Nominated victims by pod. Pods missing from the informer cache have a smaller store of their own, so that
    invented pods do not push out others. `asked` hashes a pod's demand and priority (`demand_hash`): victims nominated
    for another demand do not count."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known = BoundedMap[_Named](MAX_PREEMPTIONS, MAX_PREEMPTIONS_OF_NAMESPACE)
        self._unknown = BoundedMap[_Named](MAX_UNKNOWN_PREEMPTIONS, MAX_UNKNOWN_PREEMPTIONS)

    def __len__(self) -> int:
        return len(self._known) + len(self._unknown)

    def __contains__(self, uid: object) -> bool:
        return uid in self._known.uids or uid in self._unknown.uids

    def name(self, uid: str, victims: Mapping[str, Sequence[str]], *, asked: int, namespace: str | None = None) -> None:
        """Set the nominated victims of a pod by node; kube-scheduler takes those of a single node. `namespace` is set
        for a pod in the informer cache."""
        before = self.victims_of(uid, asked)
        self.forget(uid)
        named = {**before, **{node: frozenset(uids) for node, uids in victims.items()}}
        if named:
            place = self._known if namespace is not None else self._unknown
            place.put(uid, namespace or "", _Named(named, asked, self._clock.monotonic() + _SECONDS))

    def victims_of(self, uid: str, asked: int) -> Mapping[str, frozenset[str]]:
        """Victims by node; empty if none were nominated for the pod."""
        named = self._named(uid)
        if named is not None and named.until <= self._clock.monotonic():
            self.forget(uid)
            named = None
        return named.victims if named is not None and named.asked == asked else {}

    def stay(self, uid: str, node: str) -> None:
        """Drop the victims of a node, because they were not evicted."""
        if (named := self._named(uid)) is not None:
            named.victims.pop(node, None)

    def forget(self, uid: str) -> None:
        self._known.forget(uid)
        self._unknown.forget(uid)

    def _named(self, uid: str) -> _Named | None:
        return self._known.get(uid) or self._unknown.get(uid)
