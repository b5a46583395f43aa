"""Whom we told kube-scheduler to evict, and for which pod.

kube-scheduler sees its victims go before our mirror does. If we refused the pod that preempted them then,
kube-scheduler would preempt on another node as well. So the victims count as gone for that pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aliquot.clock import Clock
from aliquot.control.state.remembered import Remembered
from aliquot.model.bounds import MAX_PREEMPTIONS, MAX_PREEMPTIONS_OF_NAMESPACE, MAX_UNKNOWN_PREEMPTIONS

_SECONDS = 300.0
"""Longer than victims take to end; kube-scheduler looks at every pod again after as much time."""


@dataclass(frozen=True, slots=True)
class _Named:
    victims: dict[str, frozenset[str]]
    asked: int
    until: float


class Preemptions:
    """Pods that our mirror does not know yet have a smaller place of their own, so that invented ones do not push the
    others out. `asked` stands for what a pod asks, and how important it is (`asked_by`): victims that were named for
    another demand do not count."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known = Remembered[_Named](MAX_PREEMPTIONS, MAX_PREEMPTIONS_OF_NAMESPACE)
        self._unknown = Remembered[_Named](MAX_UNKNOWN_PREEMPTIONS, MAX_UNKNOWN_PREEMPTIONS)

    def __len__(self) -> int:
        return len(self._known) + len(self._unknown)

    def __contains__(self, uid: object) -> bool:
        return uid in self._known.uids or uid in self._unknown.uids

    def name(self, uid: str, victims: Mapping[str, Sequence[str]], *, asked: int, namespace: str | None = None) -> None:
        """The victims by node, as they were last named for a pod; kube-scheduler takes those of one node. `namespace`
        is that of a pod of our mirror."""
        before = self.victims_of(uid, asked)
        self.forget(uid)
        named = {**before, **{node: frozenset(uids) for node, uids in victims.items()}}
        if named:
            place = self._known if namespace is not None else self._unknown
            place.put(uid, namespace or "", _Named(named, asked, self._clock.monotonic() + _SECONDS))

    def victims_of(self, uid: str, asked: int) -> Mapping[str, frozenset[str]]:
        """By node; empty for a pod for which we named none."""
        named = self._named(uid)
        if named is not None and named.until <= self._clock.monotonic():
            self.forget(uid)
            named = None
        return named.victims if named is not None and named.asked == asked else {}

    def stay(self, uid: str, node: str) -> None:
        """The victims of a node were not evicted."""
        if (named := self._named(uid)) is not None:
            named.victims.pop(node, None)

    def forget(self, uid: str) -> None:
        self._known.forget(uid)
        self._unknown.forget(uid)

    def _named(self, uid: str) -> _Named | None:
        return self._known.get(uid) or self._unknown.get(uid)
