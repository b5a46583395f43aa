"""Observe mode: logs where waiting GPU pods would have been placed. Writes nothing to the cluster."""

from collections.abc import Iterable

import structlog

from aliquot.clock import came
from aliquot.control import ControlPlane
from aliquot.control.loops.node_choice import NodeChoice, NodeChooser
from aliquot.errors import BadDemand
from aliquot.model import Pod

_log = structlog.get_logger()

_PAUSE_SECONDS = 1.0
_QUIET_SECONDS = 60.0


class Observer:
    """Logs each verdict once, and again when it changes. A pod bound before we judged it is judged as if it were not
    there."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._chooser = NodeChooser(plane.cluster, plane.nodes.all, plane.pods_on)
        self._logged: dict[str, str] = {}
        self._accounted_for: set[str] | None = None
        """Pods already logged, or bound before we began."""

    async def run(self) -> None:
        with self._plane.changed.as_event() as changed:
            while True:
                changed.clear()
                if not self._plane.not_ready():
                    self.look()
                await self._plane.clock.sleep(_PAUSE_SECONDS)  # handle a burst of changes in a single pass
                await came(changed, _QUIET_SECONDS, self._plane.clock)

    def look(self) -> None:
        """Judge the waiting pods, and the pods bound since the last pass."""
        pods = self._plane.pods.all()
        bound = {pod.metadata.uid: pod for pod in pods if pod.spec.node_name}
        known = self._accounted_for if self._accounted_for is not None else bound.keys()
        for uid in bound.keys() - known:
            if self._asks_for_gpu(bound[uid]):
                self._log_afterwards(bound[uid])
        self._look_at_waiting(pod for pod in pods if pod.waits)
        self._accounted_for = bound.keys() | self._logged.keys()

    def _look_at_waiting(self, pods: Iterable[Pod]) -> None:
        waiting = {pod.metadata.uid: pod for pod in pods if self._asks_for_gpu(pod)}
        self._logged = {uid: verdict for uid, verdict in self._logged.items() if uid in waiting}
        for uid, pod in waiting.items():
            choice = self._chooser.choose(pod)
            verdict = f"on {choice.node}" if choice.node else choice.why
            if self._logged.get(uid) != verdict:
                self._logged[uid] = verdict
                _log_choice(pod, choice)

    def _log_afterwards(self, pod: Pod) -> None:
        with self._plane.cluster.trial(without=pod.metadata.uid):
            choice = self._chooser.choose(pod)
            cards = choice.cards()
        theirs = pod.spec.node_name
        if choice.node is None:
            _log.info("would have waited", pod=pod.key, bound_to=theirs, why=choice.why)
        else:
            _log.info("would have placed", pod=pod.key, bound_to=theirs, node=choice.node, cards=cards)

    def _asks_for_gpu(self, pod: Pod) -> bool:
        try:
            return self._plane.cluster.demand_of(pod) is not None
        except BadDemand:
            return True


def _log_choice(pod: Pod, choice: NodeChoice) -> None:
    if choice.node is None:
        _log.info("would wait", pod=pod.key, why=choice.why)
        return
    _log.info("would place", pod=pod.key, node=choice.node, cards=choice.cards())
