"""Requeue refused pods when there is room for them.

kube-scheduler retries a pod that an extender refused when an object changes that it watches. It does not hear of a
raised quota, a recovered card or an expired claim, and the pod would wait for five minutes. So the Lease holder works
out which refused pods fit now, and writes an annotation on exactly these. That update moves the pod back into the
queue.

A pod is requeued once per opening, whatever the result. If kube-scheduler's own filters refuse the pod where the room
is, the next pod in the queue is requeued instead.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import chain
from typing import NoReturn

import structlog

from aliquot import metrics
from aliquot.clock import Clock, came, rfc3339
from aliquot.control.leadership.leadership import Leadership
from aliquot.control.leadership.rights import PATCH_PODS
from aliquot.control.requeue.candidates import Candidates
from aliquot.control.requeue.nominations import Nominations
from aliquot.control.requeue.openings import Openings
from aliquot.control.requeue.rate_limit import RateLimit
from aliquot.control.requeue.waiting_pods import EarlyRefusals, WaitingPod, WaitingPods
from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.opening import Opening
from aliquot.dialects import Demand
from aliquot.errors import BadDemand
from aliquot.kube import PODS, ApiError, Client, KubeError, NotFound, NotSent
from aliquot.kube.errors import Invalid, TooManyRequests
from aliquot.model import Node, Pod, Reason
from aliquot.model.admission import WOKEN

_log = structlog.get_logger()

_GRACE_SECONDS = 1.0
"""Time for kube-scheduler to retry by itself after an event that it sees."""
_AT_ONCE = 64
_PER_SECOND = 32.0
_CONNECTIONS = 8
"""Opening a connection takes longer than waiting for another write's response."""
_TRIES = 3
_PAUSE_SECONDS = 0.25
_RETRY_SECONDS = 1.0
_SWEEP_SECONDS = 60.0


class Requeuer:
    """Endpoints report their answers (`refused`, `refused_early`, `passed`), the cluster state reports new room
    (`opened`), the informer reports pods (`see`, `forget`).

    `node_called` finds a node in the informer cache, `pod_with` a pod by its UID. `is_served` says whether a pod
    belongs to a scheduler that we serve.
    """

    def __init__(
        self,
        client: Client,
        cluster: ClusterState,
        node_called: Callable[[str], Node | None],
        pod_with: Callable[[str], Pod | None],
        leadership: Leadership,
        clock: Clock,
        *,
        is_in_sync: Callable[[], bool] = lambda: True,
        is_served: Callable[[Pod], bool] = lambda _: True,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._pod_with = pod_with
        self._leadership = leadership
        self._clock = clock
        self._is_in_sync = is_in_sync
        self._is_served = is_served
        self._pods = WaitingPods(cluster.demand_of)
        self._early = EarlyRefusals()
        self._openings = Openings(clock, _GRACE_SECONDS)
        self._nominations = Nominations(clock, cluster.ledger)
        self._candidates = Candidates(cluster, self._pods, self._openings, self._nominations, node_called, clock)
        self._pace = RateLimit(clock, at_once=_AT_ONCE, per_second=_PER_SECOND)
        self._wake = asyncio.Event()
        self._swept_at = clock.monotonic()

    @property
    def waiting(self) -> int:
        """Number of known waiting pods that were refused."""
        return len(self._pods)

    @property
    def early(self) -> int:
        """Number of refused pods that the informer cache does not have yet."""
        return len(self._early)

    # -- reports from others

    def refused(self, pod: Pod) -> None:
        """A filter left no node for a GPU pod that we serve, as our informer cache has it."""
        self._end_nomination(pod.metadata.uid)
        self._early.forget(pod.metadata.uid)
        self._pods.put(WaitingPod(pod, self._openings.latest, self._clock.monotonic()))

    def refused_early(self, uid: str) -> None:
        """A filter left no node for a pod that the informer cache does not have yet, or has in another version. The pod
        waits once the cache shows it, if it is ours then. An already waiting pod stays as it is."""
        if uid not in self._pods.uids:
            self._early.put(uid, self._openings.latest, self._clock.monotonic())

    def inherit(self, pods: Iterable[Pod]) -> None:
        """Take over pods that another server refused, because we lead from now on. kube-scheduler wrote our words on
        these pods. Pods that fit now, and that kube-scheduler does not retry soon, are requeued."""
        for pod in pods:
            is_new = pod.waits and pod.metadata.uid not in self._pods.uids
            if is_new and self._is_served(pod) and self._was_refused_by_us(pod):
                self._pods.put(WaitingPod(pod, self._openings.latest, self._clock.monotonic()))
        self.opened(Opening(heard=True))

    def _was_refused_by_us(self, pod: Pod) -> bool:
        refused = [c for c in pod.status.conditions or () if c.type == "PodScheduled" and c.status == "False"]
        demand = self._demand_of(pod) if refused else None
        words = [demand.dialect.words(reason) for reason in Reason] if demand else []
        return any(word in (condition.message or "") for condition in refused for word in words)

    def _demand_of(self, pod: Pod) -> Demand | None:
        """None also for an unreadable demand."""
        try:
            return self._cluster.demand_of(pod)
        except BadDemand:
            return None

    def passed(self, pod: Pod) -> None:
        """A filter left a node: the pod is about to be bound."""
        self._waits_no_more(pod.metadata.uid)

    def _waits_no_more(self, uid: str) -> None:
        self._pods.forget(uid)
        self._early.forget(uid)

    def opened(self, opening: Opening) -> None:
        """Room may have become available."""
        if not len(self._pods) and not len(self._early):
            return
        if not opening.heard or self._openings.next_at() is None:
            self._wake.set()
        self._openings.add(opening)

    def see(self, pod: Pod) -> None:
        """Take in a pod. A bound, ended or terminating pod no longer waits."""
        uid = pod.metadata.uid
        if pod.spec.node_name:
            self._waits_no_more(uid)
            self._nominations.bound(uid)
        elif pod.metadata.deletion_timestamp or pod.ended:
            self.forget(uid)
        else:
            self._pods.see(pod)
            self._see_refused(pod)

    def _see_refused(self, pod: Pod) -> None:
        """Take in a pod that was refused before the informer cache had it."""
        refused = self._early.shown(pod)
        if refused is not None and pod.waits and self._is_served(pod) and self._demand_of(pod) is not None:
            self._pods.put(refused)
            self._wake.set()  # there may have been room since

    def forget(self, uid: str) -> None:
        """Drop a deleted pod."""
        self._waits_no_more(uid)
        self._end_nomination(uid)

    def _end_nomination(self, uid: str) -> None:
        if self._nominations.end(uid):
            self._wake.set()

    # -- requeueing

    async def run(self) -> NoReturn:
        while True:
            await came(self._wake, self._seconds_to_wait(), self._clock)
            self._wake.clear()
            await self.look()

    async def look(self) -> None:
        """Requeue pods that fit now, within the rate limit. One pass.

        All writes go out together: the first Binding makes kube-scheduler retry every other pod.
        """
        self._openings.ripen()
        self._nominations.tidy()
        self._sweep()
        most, chosen, search = self._pace.left(), list[WaitingPod](), self._candidates.search()
        while self._may_act() and len(chosen) < most and not search.is_done:
            found = self._candidates.choose(search, most - len(chosen))
            self._pace.spend(len(found))
            chosen += found
            await self._clock.sleep(0)
        await self._requeue_all(chosen)

    async def _requeue_all(self, chosen: list[WaitingPod]) -> None:
        connections = asyncio.Semaphore(_CONNECTIONS)

        async def requeue(refused: WaitingPod) -> None:
            async with connections:
                if not self._is_in_the_way(refused):
                    await self._requeue(refused)

        async with asyncio.TaskGroup() as writing:
            for refused in chosen:
                writing.create_task(requeue(refused))

    def _is_in_the_way(self, refused: WaitingPod) -> bool:
        """Whether kube-scheduler retried the pod meanwhile, and its Binding needs an unchanged resourceVersion."""
        demand = self._pods.demand(refused)
        return refused not in self._pods and demand is not None and demand.dialect.demand_can_change(refused.pod)

    def _may_act(self) -> bool:
        """Whether the cluster state is in sync and we may write."""
        return self._leadership.may_commit and PATCH_PODS not in self._leadership.lacking and self._is_in_sync()

    def _seconds_to_wait(self) -> float:
        """Seconds until the next work that no event announces."""
        now, ripe_at = self._clock.monotonic(), self._openings.next_at()
        times = [self._swept_at + _SWEEP_SECONDS, self._candidates.next_search_at(), *self._nominations.ends()]
        if ripe_at is not None:
            times.append(ripe_at)
        if self._candidates.has_work:
            times.append(now + (max(_PAUSE_SECONDS, self._pace.next_in()) if self._may_act() else _RETRY_SECONDS))
        return max(0.0, min(times) - now)

    async def _requeue(self, refused: WaitingPod) -> None:
        meta = refused.pod.metadata
        body = {"metadata": {"annotations": {WOKEN: rfc3339(self._clock.wall_ns(), fraction=True)}}}
        try:
            await self._client.patch(PODS, meta.name, body, namespace=meta.namespace, uid=meta.uid)
        except (NotFound, Invalid):  # Invalid: another pod has its name now
            metrics.WAKES.labels("gone").inc()
            self.forget(meta.uid)
        except (NotSent, TooManyRequests) as error:
            metrics.WAKES.labels("failed").inc()
            self._try_again(refused, error)
        except ApiError as error:
            metrics.WAKES.labels("refused").inc()
            self._end_nomination(meta.uid)
            _log.warning("not allowed to requeue a pod", pod=refused.pod.key, error=str(error))
        except KubeError as error:
            metrics.WAKES.labels("unknown").inc()
            _log.warning("cannot learn whether a pod was requeued", pod=refused.pod.key, error=str(error))
        else:
            metrics.WAKES.labels("woken").inc()
            _log.debug("requeued a pod", pod=refused.pod.key)

    def _try_again(self, refused: WaitingPod, error: KubeError) -> None:
        """Retry a write that was not made, for the same room, up to the limit."""
        self._end_nomination(refused.uid)
        refused.tries += 1
        refused.woken = refused.tries >= _TRIES
        _log.warning("cannot requeue a pod", pod=refused.pod.key, tries=refused.tries, error=str(error))

    def _sweep(self) -> None:
        """Drop pods that were gone before their refusal arrived, and openings that every pod knows."""
        now = self._clock.monotonic()
        if now < self._swept_at + _SWEEP_SECONDS:
            return
        for refused in list(self._pods):
            if refused.asked_at < self._swept_at and self._pod_with(refused.uid) is None:
                self._pods.forget(refused.uid)
        self._early.forget_before(self._swept_at)
        known = chain((refused.knows for refused in self._pods), self._early.known_openings())
        self._openings.forget_until(min(known, default=self._openings.latest))
        self._swept_at = now
