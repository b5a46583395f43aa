"""Our own scheduler: places pending pods itself, for `aliquot demo` and for pods that name it."""

from collections.abc import Callable

import structlog

from aliquot.clock import came
from aliquot.control import ControlPlane
from aliquot.control.loops.node_choice import NodeChooser
from aliquot.errors import AliquotError, NotLeading
from aliquot.model import Pod

_log = structlog.get_logger()

_QUIET_SECONDS = 5.0
"""A pod whose Binding has an unknown outcome is retried after this long even if nothing changes."""


class Scheduler:
    """`serves` says whether a schedulerName is ours."""

    def __init__(self, plane: ControlPlane, serves: Callable[[str], bool]) -> None:
        self._plane = plane
        self._serves = serves
        self._chooser = NodeChooser(plane.cluster, plane.nodes.all, plane.pods_on)

    async def run(self) -> None:
        await self._plane.nodes.synced.wait()
        await self._plane.pods.synced.wait()
        with self._plane.changed.as_event() as changed:
            while True:
                changed.clear()
                await self.place_pending()
                await came(changed, _QUIET_SECONDS, self._plane.clock)

    async def place_pending(self) -> None:
        """Place the pending pods, oldest first. One pass. Does nothing while the cluster state may be out of sync, or
        another server leads."""
        if self._plane.not_ready() or not self._plane.leadership.may_commit:
            return
        for pod in sorted(filter(self._is_waiting, self._plane.pods.all()), key=_age):
            try:
                await self._place(pod)
            except AliquotError as error:
                _log.warning("cannot place a pod", pod=pod.key, why=str(error))
                if isinstance(error, NotLeading):
                    return

    def _is_waiting(self, pod: Pod) -> bool:
        return pod.waits and self._serves(pod.spec.scheduler_name) and not self._is_bound(pod)

    def _is_bound(self, pod: Pod) -> bool:
        """The cluster state can be briefly ahead of the informer cache."""
        uid = pod.metadata.uid
        return any(self._plane.cluster.is_settled(uid, node) for node in self._plane.cluster.ledger.nodes_of(uid))

    async def _place(self, pod: Pod) -> None:
        choice = self._chooser.choose(pod)
        if choice.node is None:
            await self._plane.pod_events.waits(pod, choice.why)
            return
        await self._plane.committer.commit(pod, choice.node)
        await self._plane.pod_events.is_bound(pod, choice.node)


def _age(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.key
