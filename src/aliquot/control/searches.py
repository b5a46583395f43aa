"""Who may search, and for how long.

To find out whether several containers fit on a node can take long, and nobody else is answered meanwhile. So

* a decision gets so many seconds, in steps (`engine.effort`), over all nodes;
* a pod for which that was not enough is not searched again for a while, each time for twice as long;
* a namespace that has searched for long gets a tenth of the time from then on, and all together three tenths.

Who may not search now still gets what is found at once. `search limit` is the answer for the rest.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TypeVar

import structlog

from aliquot import metrics
from aliquot.clock import Clock
from aliquot.engine import FULL_EFFORT, Effort
from aliquot.model import Request
from aliquot.model.bounds import MOST_SEARCHING_NAMESPACES, MOST_SEARCHING_PODS

_log = structlog.get_logger()

Answer = TypeVar("Answer")

_STEPS_PER_SECOND = FULL_EFFORT
"""On a machine as fast as steps are meant for. It is measured, and on a slower one there are fewer."""
_FEWEST_PER_SECOND = FULL_EFFORT // 10
"""However slow the machine seems to be."""
_WORTH_MEASURING = FULL_EFFORT // 100
_NEWEST_COUNTS = 0.3
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
_SECONDS_TO_BIND = 30.0
"""For which a pod that has found a place may search on: it is asked for again, to score and to bind."""
_MOST_CHARGED = 5.0
"""For one decision: a process that was stopped meanwhile has not searched."""
_AT_ONCE, _SHARE = 2.0, 0.1
"""Seconds that a namespace may search, and seconds a second that it may from then on."""
_AT_ONCE_OF_ALL, _SHARE_OF_ALL = 6.0, 0.3


class Purse:
    """Seconds that may be spent, and come back by and by. Whoever has any left may spend more than that."""

    def __init__(self, at_once: float, share: float, now: float) -> None:
        self._at_once, self._share = at_once, share
        self._left, self._counted_at = at_once, now

    def left(self, now: float) -> float:
        self._left = min(self._at_once, self._left + (now - self._counted_at) * self._share)
        self._counted_at = now
        return self._left

    def spend(self, seconds: float, now: float) -> None:
        self._left = self.left(now) - seconds

    def open_at(self, now: float) -> float:
        """When there is something left again."""
        return now + max(0.0, -self.left(now) / self._share)


@dataclass
class _Pod:
    pause: float = 0.0
    waits_until: float = -inf
    may_until: float = -inf
    """It has found a place."""


class Searches:
    """A decision gets `seconds`. Without a clock, every decision may search for as long as one may."""

    def __init__(self, clock: Clock | None = None, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self._clock = clock
        self._steps_per_second = float(_STEPS_PER_SECOND)
        self._pods: OrderedDict[str, _Pod] = OrderedDict()
        self._purses: OrderedDict[str, Purse] = OrderedDict()
        self._all = Purse(_AT_ONCE_OF_ALL, _SHARE_OF_ALL, clock.monotonic() if clock else 0.0)

    def waits_until(self, uid: str) -> float:
        """Until when a pod is not searched; in the past if it is."""
        pod = self._pods.get(uid)
        return pod.waits_until if pod else -inf

    def is_waiting(self, uid: str) -> bool:
        return self._clock is not None and self._clock.monotonic() < self.waits_until(uid)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._pods.pop(uid, None)

    def ask(
        self,
        request: Request,
        question: Callable[[Effort], Answer],
        is_found: Callable[[Answer], bool] = bool,
        *,
        places: bool = False,
    ) -> Answer:
        """Ask what may take a search, with the effort that the pod may have for it now. `places`: a place that is found
        will be asked for again, to score and to bind."""
        if self._clock is None or not request.needs_search:
            return question(Effort())
        began = self._clock.monotonic()
        effort = Effort(self._allowed(request, began))
        answer = question(effort)
        if effort.spent or effort.ran_out:
            now, found = self._clock.monotonic(), is_found(answer)
            self._charge(request.namespace, effort, now - began, now)
            self._note(request, effort, now, found=found, places=places)
        return answer

    def _allowed(self, request: Request, now: float) -> int:
        pod = self._pods.get(_key(request), _Pod())
        if now < pod.waits_until:
            return 0
        if now >= pod.may_until and self._open_at(request, now) > now:
            return 0
        return int(max(_FEWEST_PER_SECOND, self._steps_per_second) * self.seconds)

    def _open_at(self, request: Request, now: float) -> float:
        own = self._purses.get(request.namespace)
        return max(self._all.open_at(now), own.open_at(now) if own else now)

    def _charge(self, namespace: str, effort: Effort, seconds: float, now: float) -> None:
        """By the clock, but not less than the steps are worth."""
        worth = effort.worked / _STEPS_PER_SECOND
        seconds = max(min(seconds, _MOST_CHARGED) if worth else 0.0, worth)
        purse = self._purses.pop(namespace, None) or Purse(_AT_ONCE, _SHARE, now)
        purse.spend(seconds, now)
        self._all.spend(seconds, now)
        metrics.SEARCH_SECONDS.inc(seconds)
        self._purses[namespace] = purse
        if len(self._purses) > MOST_SEARCHING_NAMESPACES:
            self._purses.popitem(last=False)
        if effort.worked >= _WORTH_MEASURING:
            speed = effort.worked / seconds
            self._steps_per_second += _NEWEST_COUNTS * (speed - self._steps_per_second)

    def _note(self, request: Request, effort: Effort, now: float, *, found: bool, places: bool) -> None:
        pod = self._pods.pop(_key(request), _Pod())
        if found:
            metrics.SEARCHES.labels("found").inc()
            pod.pause = 0.0
            pod.may_until = now + _SECONDS_TO_BIND if places else pod.may_until
        elif effort.ran_out and effort.spent:
            pod.pause = min(_LONGEST_PAUSE, max(_FIRST_PAUSE, pod.pause * 2))
            pod.waits_until, pod.may_until = now + pod.pause, -inf
            metrics.SEARCHES.labels("given_up").inc()
            _log.warning("a search was given up", pod=request.pod, searched_again_after=pod.pause)
        elif effort.ran_out:
            metrics.SEARCHES.labels("pod_waits" if now < pod.waits_until else "namespace_waits").inc()
            pod.waits_until = max(pod.waits_until, self._open_at(request, now))
        else:
            metrics.SEARCHES.labels("fits_nowhere").inc()
            return
        self._pods[_key(request)] = pod
        if len(self._pods) > MOST_SEARCHING_PODS:
            self._pods.popitem(last=False)


def _key(request: Request) -> str:
    return request.uid or request.pod
