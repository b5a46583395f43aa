"""The queue of late placement: which bound pods are worth an attempt, and in which order."""

import asyncio
from collections.abc import Callable
from math import inf

from aliquot.clock import Clock
from aliquot.config.sections.placement import LateSection
from aliquot.control.state.assumed_pods import packing_order
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.search_allowances import Allowance
from aliquot.model import Node, Pod

_STRETCH = 256
"""Pods checked for changes before the loop yields."""
_LOST_AT_ONCE, _LOST_SHARE = 2.0, 0.2
"""Seconds that failed attempts may take per namespace at once, and seconds per second after that."""


class LateQueue:
    """Remembers failed attempts: a pod is retried only after a relevant change, or when it is due to fail."""

    def __init__(
        self,
        cluster: ClusterState,
        node_called: Callable[[str], Node | None],
        clock: Clock,
        settings: LateSection,
    ) -> None:
        self._cluster = cluster
        self._node_called = node_called
        self._clock = clock
        self._settings = settings
        self._crowded_out: dict[str, float] = {}
        """Since when there is no room for a pod."""
        self._ignored: set[str] = set()
        self._last_failure: dict[str, tuple[object, ...]] = {}
        """The circumstances of the last failed attempt for a pod."""
        self._allowances: dict[str, Allowance] = {}
        """Time left for failed attempts, by namespace."""

    def reconfigure(self, settings: LateSection) -> None:
        self._settings = settings

    async def pods(self) -> list[Pod]:
        """The bound pods without a placement that are worth an attempt, in the order that endpoints expect; ignored
        pods come last. Reading demands takes time, so this yields in between."""
        queue: list[tuple[tuple[float, str], Pod]] = []
        for number, pod in enumerate(list(self._cluster.unplaced.values())):
            is_worth_it = self.is_worth_a_look(pod)
            if is_worth_it:
                is_ours = pod.metadata.uid not in self._ignored
                queue.append((packing_order(self._cluster, pod) if is_ours else (inf, ""), pod))
            if is_worth_it or number % _STRETCH == 0:
                await asyncio.sleep(0)
        return [pod for _, pod in sorted(queue, key=lambda placed: placed[0])]

    def is_worth_a_look(self, pod: Pod) -> bool:
        """Whether something changed since the last failed attempt, or the pod is due to fail, and its namespace has
        time left."""
        uid, now = pod.metadata.uid, self._clock.monotonic()
        allowance = self._allowances.get(pod.metadata.namespace)
        if allowance is not None and allowance.left(now) <= 0:
            return False
        return self._is_due(uid, now) or self._last_failure.get(uid) != self._circumstances(pod)

    def _circumstances(self, pod: Pod) -> tuple[object, ...]:
        """Everything that decides whether a pod can be placed."""
        meta, name, ledger = pod.metadata, pod.spec.node_name, self._cluster.ledger
        entries = self._cluster.quotas.entries
        quota = (entries[meta.namespace], ledger.changes) if meta.namespace in entries else None
        may_not_search = self._cluster.searches.is_waiting(meta.uid)
        return pod, self._node_called(name), ledger.version(name), quota, may_not_search

    def _is_due(self, uid: str, now: float) -> bool:
        return now - self._crowded_out.get(uid, inf) >= self._settings.seconds

    # -- outcomes of attempts

    def ignore(self, pod: Pod) -> bool:
        """Put a pod last from now on. Returns whether it was not ignored before."""
        is_new = pod.metadata.uid not in self._ignored
        self._ignored.add(pod.metadata.uid)
        return is_new

    def is_placed(self, pod: Pod) -> None:
        self._crowded_out.pop(pod.metadata.uid, None)

    def has_failed(self, pod: Pod) -> None:
        """Try the pod again only after a relevant change."""
        self._last_failure[pod.metadata.uid] = self._circumstances(pod)

    def has_no_room(self, pod: Pod, now: float) -> bool:
        """Note that a pod has no room on its node. Returns whether it is due to fail: the event that frees room may
        still be on its way."""
        self._crowded_out.setdefault(pod.metadata.uid, now)
        return self._is_due(pod.metadata.uid, now)

    def spend(self, namespace: str, began: float) -> None:
        """Charge a failed attempt to a namespace."""
        now = self._clock.monotonic()
        allowance = self._allowances.setdefault(namespace, Allowance(_LOST_AT_ONCE, _LOST_SHARE, began))
        allowance.spend(now - began, now)

    def forget_others(self) -> None:
        """Drop pods that no longer wait for a placement."""
        uids, namespaces = set[str](), set[str]()
        for pod in self._cluster.unplaced.values():
            uids.add(pod.metadata.uid)
            namespaces.add(pod.metadata.namespace)
        self._ignored &= uids
        self._crowded_out = {uid: since for uid, since in self._crowded_out.items() if uid in uids}
        self._last_failure = {uid: seen for uid, seen in self._last_failure.items() if uid in uids}
        self._allowances = {name: allowance for name, allowance in self._allowances.items() if name in namespaces}
