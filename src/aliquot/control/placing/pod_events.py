"""Status for pod owners, where every tool shows it: in the pod's condition and events."""

import structlog

from aliquot.clock import Clock
from aliquot.kube import PODS, Client, KubeError
from aliquot.kube.event_recorder import EventRecorder
from aliquot.model import Placement, Pod
from aliquot.model.admission import NO_ROOM

_log = structlog.get_logger()
_COMPONENT = "aliquot"
_LONGEST_MESSAGE = 1000
"""Events take 1,024 characters."""

PLACED_LATE = "PlacedLate"
"""Event reason of a pod that got its cards after it was bound."""


class PodEvents:
    """Where kube-scheduler binds, it reports the rest itself. If a report fails, we only log that."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._events = EventRecorder(client, clock, _COMPONENT)

    async def waits(self, pod: Pod, why: str) -> None:
        """Report that the pod is unschedulable. Writes nothing if its condition already says so."""
        if any(c.type == "PodScheduled" and c.message == why for c in pod.status.conditions or ()):
            return
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
        body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        meta = pod.metadata
        try:
            await self._client.patch(PODS, meta.name, body, namespace=meta.namespace, part="status", merge_lists=True)
        except KubeError as error:
            _log.warning("cannot report why a pod waits", pod=pod.key, why=why, error=str(error))
            return
        await self._event(pod, "Warning", "FailedScheduling", why)

    async def is_bound(self, pod: Pod, node: str) -> None:
        await self._event(pod, "Normal", "Scheduled", f"Successfully assigned {pod.key} to {node}")

    async def is_placed_late(self, pod: Pod, placement: Placement) -> None:
        cards = ", ".join(sorted({part.uuid for part in placement.slices()}))
        message = f"The pod was bound to {placement.node} without Aliquot; Aliquot placed it on {cards} there"
        await self._event(pod, "Normal", PLACED_LATE, message[:_LONGEST_MESSAGE])

    async def has_no_room(self, pod: Pod, why: str) -> None:
        """Fail a pod that was bound to a node without room, so that its controller replaces it. Only if the pod is
        unchanged: another writer may have placed it."""
        meta, why = pod.metadata, why[:_LONGEST_MESSAGE]
        await self._event(pod, "Warning", NO_ROOM, why)
        body = {"status": {"phase": "Failed", "reason": NO_ROOM, "message": why}}
        try:
            await self._client.patch(
                PODS,
                meta.name,
                body,
                namespace=meta.namespace,
                part="status",
                uid=meta.uid,
                version=meta.resource_version,
            )
        except KubeError as error:
            _log.warning("cannot fail a pod without room", pod=pod.key, why=why, error=str(error))

    async def _event(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        try:
            if not await self._events.write(pod, kind=kind, reason=reason, message=message):
                _log.debug(
                    "dropped an event, because the pod has had too many", pod=pod.key, reason=reason, message=message
                )
        except KubeError as error:
            _log.warning("cannot write an event", pod=pod.key, reason=reason, error=str(error))
