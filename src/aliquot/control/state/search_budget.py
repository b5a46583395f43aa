"""Time budget for searches.

A search for a node that fits several containers can take long and blocks every other call. Therefore:

* a decision gets a number of seconds, counted in steps (`engine.effort`), over all nodes;
* a pod that ran out of time is not searched again for a while, and that pause doubles each time;
* a namespace that has searched for long gets a tenth of the time from then on, and all namespaces together three tenths
  (`state.search_allowances`).

A pod that may not search now still gets a placement that needs no search. Otherwise the answer is `search limit`.

Trying out victims on many nodes takes long for any pod. It is bounded and charged the same way, except for the first
moment of each decision.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from aliquot.control.state.search_allowances import SearchAllowances
from aliquot.engine import FULL_EFFORT, Effort
from aliquot.lazy_log import LazyLogger
from aliquot.model import Request
from aliquot.model.bounds import MAX_SEARCHING_PODS

if TYPE_CHECKING:
    from aliquot.clock import Clock
    from aliquot.config.sections.placement import SearchSection

_log = LazyLogger()

_T = TypeVar("_T")

_STEPS_PER_SECOND = FULL_EFFORT
"""On the reference machine. The actual speed is measured; a slower machine gets fewer steps."""
_FEWEST_PER_SECOND = FULL_EFFORT // 10
"""Lower bound, however slow the machine seems."""
_WORTH_MEASURING = FULL_EFFORT // 100
_NEWEST_COUNTS = 0.3
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
_SECONDS_TO_BIND = 30.0
"""How long a pod with a placement may keep searching: kube-scheduler calls again to score and to bind it."""
_MAX_CHARGED = 5.0
"""Per decision: a process that was suspended meanwhile has not searched."""
_FREE_SECONDS = 0.05
"""Free time per decision that tries out nodes for a pod without a search: everyday preemption never waits."""
_UNKNOWN = ""
"""The account of pods missing from our informer cache: anybody can invent a namespace for such a pod."""


@dataclass
class _Pod:
    pause: float = 0.0
    waits_until: float = -inf
    may_until: float = -inf
    """Set once the pod has a placement."""


_Key = tuple[str, bool]
"""A pod, and whether it needs a search: a pod that needs none may be placed while nobody looks for its victims."""


class SearchBudget:
    """Grants each decision `seconds` of search. Without a clock, every decision gets the full effort. `is_known` says
    whether the pod exists in the namespace of the request."""

    def __init__(
        self,
        clock: "Clock | None" = None,
        seconds: float = 1.0,
        is_known: Callable[[Request], bool] = lambda _: True,
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._is_known = is_known
        self._steps_per_second = float(_STEPS_PER_SECOND)
        self._pods: OrderedDict[_Key, _Pod] = OrderedDict()
        self._allowances = SearchAllowances(clock.monotonic() if clock else 0.0)

    def reconfigure(self, settings: "SearchSection") -> None:
        self.seconds = settings.seconds

    def waits_until(self, uid: str) -> float:
        """The time until which a pod may not search; in the past if it may."""
        pod = self._pods.get((uid, True))
        return pod.waits_until if pod else -inf

    def is_waiting(self, uid: str) -> bool:
        return self._clock is not None and self._clock.monotonic() < self.waits_until(uid)

    def forget(self, uid: str) -> None:
        """Drop a deleted pod."""
        self._pods.pop((uid, True), None)
        self._pods.pop((uid, False), None)

    def ask(
        self,
        request: Request,
        question: Callable[[Effort], _T],
        is_found: Callable[[_T], bool] = bool,
        *,
        places: bool = False,
        tries: bool = False,
    ) -> _T:
        """Ask a question that may need a search, with the effort that the pod has now. `places`: kube-scheduler will
        ask for a found placement again, to score and to bind. `tries`: the question tries out hypothetical nodes, which
        takes effort for every pod."""
        if self._clock is None or not (request.needs_search or tries):
            return question(Effort())
        began, free = self._clock.monotonic(), 0.0 if request.needs_search else min(_FREE_SECONDS, self.seconds)
        may_search = self._may_search(request, began)
        effort = Effort(self._steps(self.seconds if may_search else free))
        answer = question(effort)
        if effort.spent or effort.ran_out:
            now = self._clock.monotonic()
            self._charge(request, effort, now - began, free, now)
            self._note(request, effort, now, found=is_found(answer), places=places, searched=may_search)
        return answer

    def _may_search(self, request: Request, now: float) -> bool:
        pod = self._pods.get(_key(request), _Pod())
        if now < pod.waits_until:
            return False
        return now < pod.may_until or self._allowances.open_at(self._account(request), now) <= now

    def _steps(self, seconds: float) -> int:
        return int(max(_FEWEST_PER_SECOND, self._steps_per_second) * seconds)

    def _account(self, request: Request) -> str:
        return request.namespace if self._is_known(request) else _UNKNOWN

    def _charge(self, request: Request, effort: Effort, seconds: float, free: float, now: float) -> None:
        """Charge elapsed time, but at least what the steps are worth."""
        worth = effort.worked / _STEPS_PER_SECOND
        seconds = max(min(seconds, _MAX_CHARGED) if worth else 0.0, worth)
        charged = max(0.0, seconds - free)
        if charged or effort.ran_out:
            self._allowances.charge(self._account(request), charged, now)
        _metrics().SEARCH_SECONDS.inc(charged)
        if effort.worked >= _WORTH_MEASURING:
            speed = effort.worked / seconds
            self._steps_per_second += _NEWEST_COUNTS * (speed - self._steps_per_second)

    def _note(self, request: Request, effort: Effort, now: float, *, found: bool, places: bool, searched: bool) -> None:
        pod = self._pods.get(_key(request), _Pod())
        if found:
            _metrics().SEARCHES.labels("found").inc()
            pod.pause = 0.0
            pod.may_until = now + _SECONDS_TO_BIND if places else pod.may_until
        elif effort.ran_out and searched:
            pod.pause = min(_LONGEST_PAUSE, max(_FIRST_PAUSE, pod.pause * 2))
            pod.waits_until, pod.may_until = now + pod.pause, -inf
            _metrics().SEARCHES.labels("given_up").inc()
            _log.warning("gave up a search", pod=request.pod, search_again_after=pod.pause)
        elif effort.ran_out:
            _metrics().SEARCHES.labels("pod_waits" if now < pod.waits_until else "namespace_waits").inc()
            if not self._is_known(request):
                return  # the cache may soon know the pod, and charge its own namespace
            pod.waits_until = max(pod.waits_until, self._allowances.open_at(request.namespace, now))
        else:
            _metrics().SEARCHES.labels("fits_nowhere").inc()
            self._pods.pop(_key(request), None)
            return
        self._pods[_key(request)] = pod
        self._pods.move_to_end(_key(request))
        if len(self._pods) > MAX_SEARCHING_PODS:
            self._pods.popitem(last=False)


def _key(request: Request) -> _Key:
    return request.uid or request.pod, request.needs_search


def _metrics() -> ModuleType:
    """Imported when the first search ends: whoever decides nothing needs no Prometheus."""
    from aliquot import metrics

    return metrics
