"""The leader's reasons: for each GPU pod that waits, the dominant cause as a condition and an event.

kube-scheduler asks an extender last. A pod with a misspelt resource, or for a node whose agent is silent, gets
"Insufficient ..." from it and nothing from us. So the leader judges every waiting pod by itself, a moment after it came
and then less and less often, and writes its verdict once. Only the event is repeated, because it expires.

The verdict is on the pod: a new leader compares it with its own and writes nothing that is there already.
"""

import asyncio
from collections.abc import Callable
from typing import NoReturn

import msgspec
import structlog

from aliquot.clock import Clock, came
from aliquot.control.leadership.leadership import Leadership
from aliquot.control.placing.pod_events import PodEvents
from aliquot.control.requeue.rate_limit import RateLimit
from aliquot.control.state.bounded_map import BoundedMap
from aliquot.control.waiting.schedule import FIRST_SECONDS, Told, Waiting, reason_on
from aliquot.kube import Client, KubeError
from aliquot.kube.errors import NotFound
from aliquot.kube.resources import PENDING_PODS
from aliquot.model import Pod
from aliquot.model.admission import WOKEN
from aliquot.model.bounds import MAX_WAITING, MAX_WAITING_OF_NAMESPACE
from aliquot.model.pending_pod import PendingPod

_log = structlog.get_logger()

_AT_ONCE, _PER_SECOND = 20, 10.0
"""Pods that are read or written on."""
_PASS_SECONDS = 1.0
_SLICE_SECONDS = 0.05
"""Length of a stretch of judging in each pass; calls of schedulers are answered in between."""
_RETRY_SECONDS = 30.0

Judge = Callable[[PendingPod], Told | None]
"""The verdict about a pod; None if there is nothing to write on it."""


class WaitingReasons:
    """The informer reports pods (`see`, `forget`). `run` judges and writes while we lead."""

    def __init__(
        self,
        client: Client,
        pod_events: PodEvents,
        leadership: Leadership,
        clock: Clock,
        *,
        is_in_sync: Callable[[], bool] = lambda: True,
        is_served: Callable[[Pod], bool] = lambda _: True,
    ) -> None:
        self._client = client
        self._pod_events = pod_events
        self._leadership = leadership
        self._clock = clock
        self._is_in_sync = is_in_sync
        self._is_served = is_served
        self._waiting = BoundedMap[Waiting](MAX_WAITING, MAX_WAITING_OF_NAMESPACE)
        self._placed: dict[str, Pod] = {}
        """Bound pods that still have our condition."""
        self._pace = RateLimit(clock, at_once=_AT_ONCE, per_second=_PER_SECOND)
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def see(self, pod: Pod) -> None:
        """Take in a pod. Only a pod that names an extended resource can wait for a card."""
        uid = pod.metadata.uid
        if not pod.waits:
            self.forget(uid)
            if pod.spec.node_name and not pod.has_final_phase and reason_on(pod) is not None:
                self._placed[uid] = pod
                self._wake.set()
        elif (known := self._waiting.get(uid)) is not None:
            known.shows(pod, self._clock.monotonic())
        elif pod.asks_extended and self._is_served(pod):
            self._waiting.put(uid, pod.metadata.namespace, Waiting(pod, self._clock.monotonic() + FIRST_SECONDS))
            self._wake.set()

    def reason_of(self, uid: str) -> str:
        """The cause of our last verdict about a waiting pod; empty if there is none."""
        waiting = self._waiting.get(uid)
        return waiting.told.reason if waiting is not None and waiting.told is not None else ""

    def in_full(self, uid: str) -> PendingPod | None:
        """A waiting pod in full; None if we have not read it."""
        waiting = self._waiting.get(uid)
        return waiting.full() if waiting is not None else None

    def forget(self, uid: str) -> None:
        """Drop a pod that waits no more."""
        self._waiting.forget(uid)
        self._placed.pop(uid, None)

    async def run(self, judge: Judge) -> NoReturn:
        while True:
            await came(self._wake, self._seconds_to_wait(), self._clock)
            self._wake.clear()
            if self._may_act():
                await self.look(judge)
            await self._clock.sleep(_PASS_SECONDS)

    async def look(self, judge: Judge) -> None:
        """Judge the pods that are due, and write new verdicts. One pass."""
        await self._clear()
        now = self._clock.monotonic()
        due = sorted((waiting for waiting in self._waiting if waiting.due <= now), key=lambda waiting: waiting.due)
        verdicts: dict[bytes, Told | None] = {}
        for waiting in due:
            if not self._pace.left() or self._clock.monotonic() - now > _SLICE_SECONDS or not self._may_act():
                return
            if (pod := waiting.full() or await self._read(waiting)) is not None:
                kind = _kind(pod)
                if kind not in verdicts:
                    verdicts[kind] = judge(pod)
                waiting.judged(verdicts[kind], self._clock.monotonic())
                await self._write(waiting)

    def _may_act(self) -> bool:
        return self._leadership.may_commit and self._is_in_sync()

    def _seconds_to_wait(self) -> float:
        due = min((waiting.due for waiting in self._waiting), default=self._clock.monotonic() + _RETRY_SECONDS)
        return 0.0 if self._placed else max(0.0, due - self._clock.monotonic())

    async def _read(self, waiting: Waiting) -> PendingPod | None:
        """The pod in full, from the API server. None if it is gone, or cannot be read now."""
        meta = waiting.pod.metadata
        self._pace.spend(1)
        try:
            read = await self._client.get(PENDING_PODS, meta.name, meta.namespace)
        except NotFound:
            self.forget(meta.uid)
            return None
        except KubeError as error:
            waiting.due = self._clock.monotonic() + _RETRY_SECONDS
            _log.debug("cannot read a pod that waits", pod=waiting.pod.key, error=str(error))
            return None
        if read.metadata.uid != meta.uid or not read.waits:
            waiting.due = self._clock.monotonic() + _RETRY_SECONDS  # the informer will show it soon
            return None
        waiting.read = read
        return read

    async def _write(self, waiting: Waiting) -> None:
        now, told, pod = self._clock.monotonic(), waiting.told, waiting.pod
        condition = reason_on(pod)
        if told is None:
            return
        if condition is not None and condition.message == told.message:
            if now < waiting.event_due:
                return
            write = self._pod_events.still_cannot_be_placed
        elif waiting.may_write(now):
            waiting.written(now)
            write = self._pod_events.cannot_be_placed
        else:
            return
        self._pace.spend(min(1, self._pace.left()))
        waiting.has_event(now, is_written=await write(pod, told.reason, told.message))

    async def _clear(self) -> None:
        """Remove our condition from pods that were bound."""
        for uid in list(self._placed):
            if not self._pace.left():
                return
            self._pace.spend(1)
            if (pod := self._placed.pop(uid, None)) is not None:
                await self._pod_events.is_placed(pod)


def _kind(pod: PendingPod) -> bytes:
    """Equal for pods about which there is one verdict, such as the pods of a ReplicaSet."""
    meta = pod.metadata
    annotations = {key: value for key, value in meta.annotations.items() if key != WOKEN}
    said = [condition.message for condition in pod.status.conditions or () if condition.type == "PodScheduled"]
    return msgspec.json.encode((meta.namespace, pod.spec, annotations, meta.labels, said))
