"""Observe mode: says where waiting GPU pods would have been placed. Writes nothing to the cluster."""

import asyncio

import structlog

from aliquot.clock import came
from aliquot.control import ControlPlane
from aliquot.doors.scheduler import Scheduler
from aliquot.errors import BadDemand
from aliquot.model import Pod

_log = structlog.get_logger()

_PAUSE_SECONDS = 1.0
_QUIET_SECONDS = 60.0


class Observer:
    """Each verdict is told once, and again when it changes."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._scheduler = Scheduler(plane, lambda _: True)
        self._told: dict[str, str] = {}
        self._changed = asyncio.Event()
        plane.on_change(self._changed.set)

    async def run(self) -> None:
        while True:
            self._changed.clear()
            if not self._plane.not_ready():
                self.look()
            await self._plane.clock.sleep(_PAUSE_SECONDS)  # a burst of changes is one look
            await came(self._changed, _QUIET_SECONDS, self._plane.clock)

    def look(self) -> None:
        """One pass over the pods that wait."""
        waiting = {pod.metadata.uid: pod for pod in self._plane.pods.all() if _waits(pod) and self._asks_for_gpu(pod)}
        self._told = {uid: told for uid, told in self._told.items() if uid in waiting}
        for uid, pod in waiting.items():
            node, why = self._scheduler.choose(pod)
            verdict = f"on {node}" if node else why
            if self._told.get(uid) != verdict:
                self._told[uid] = verdict
                self._tell(pod, node, why)

    def _tell(self, pod: Pod, node: str | None, why: str) -> None:
        if node is None:
            _log.info("would wait", pod=pod.key, why=why)
        else:
            _log.info("would place", pod=pod.key, node=node, cards=self._cards(pod, node))

    def _cards(self, pod: Pod, node: str) -> list[str]:
        demand = self._plane.books.demand_of(pod)
        placement = self._plane.books.judge(demand).placement(node) if demand else None
        return sorted({part.uuid for part in placement.slices()}) if placement else []

    def _asks_for_gpu(self, pod: Pod) -> bool:
        try:
            return self._plane.books.demand_of(pod) is not None
        except BadDemand:
            return True


def _waits(pod: Pod) -> bool:
    held_back = pod.metadata.deletion_timestamp or pod.spec.scheduling_gates
    return not (pod.spec.node_name or held_back or pod.ended)
