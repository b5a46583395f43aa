"""Status for pod owners, where every tool shows it: in the pod's condition and events."""

from collections.abc import Mapping

import structlog

from aliquot.clock import Clock, rfc3339
from aliquot.kube import PODS, Client, KubeError
from aliquot.kube.errors import Invalid, NotFound
from aliquot.kube.event_recorder import EventRecorder
from aliquot.model import Placement, Pod
from aliquot.model.admission import NO_ROOM, PLACEABLE

_log = structlog.get_logger()
_COMPONENT = "aliquot"
LONGEST_MESSAGE = 1000
"""Events take 1,024 characters."""

PLACED_LATE = "PlacedLate"
"""Event reason of a pod that got its cards after it was bound."""


class PodEvents:
    """Where kube-scheduler binds, it reports the rest itself. If a report fails, we only log that."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._events = EventRecorder(client, clock, _COMPONENT)

    async def waits(self, pod: Pod, why: str) -> None:
        """Report that the pod is unschedulable. Writes nothing if its condition already says so."""
        if any(c.type == "PodScheduled" and c.message == why for c in pod.status.conditions or ()):
            return
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
        if await self._set_condition(pod, condition):
            await self._event(pod, "Warning", "FailedScheduling", why)

    async def cannot_be_placed(self, pod: Pod, reason: str, why: str) -> bool:
        """Report why a pod waits, in our own condition and in an event. Returns False if one of them failed."""
        why = why[:LONGEST_MESSAGE]
        condition = {"type": PLACEABLE, "status": "False", "reason": reason, "message": why}
        moment = rfc3339(self._clock.wall_ns())
        is_set = await self._set_condition(pod, condition | {"lastTransitionTime": moment})
        return is_set and await self.still_cannot_be_placed(pod, reason, why)

    async def still_cannot_be_placed(self, pod: Pod, reason: str, why: str) -> bool:
        """The event alone, which does not make the scheduler try the pod. Returns False if it failed."""
        return await self._event(pod, "Warning", reason, why[:LONGEST_MESSAGE])

    async def is_placed(self, pod: Pod) -> None:
        """Remove our condition from a pod that was bound."""
        await self._set_condition(pod, {"type": PLACEABLE, "$patch": "delete"})

    async def _set_condition(self, pod: Pod, condition: Mapping[str, str]) -> bool:
        meta = pod.metadata
        body = {"metadata": {"uid": meta.uid}, "status": {"conditions": [condition]}}
        try:
            await self._client.patch(PODS, meta.name, body, namespace=meta.namespace, part="status", merge_lists=True)
        except KubeError as error:
            if not isinstance(error, NotFound | Invalid):  # the pod is gone, or another one has its name
                _log.warning("cannot write a condition on a pod", pod=pod.key, condition=condition, error=str(error))
            return False
        return True

    async def is_bound(self, pod: Pod, node: str) -> None:
        await self._event(pod, "Normal", "Scheduled", f"Successfully assigned {pod.key} to {node}")

    async def is_placed_late(self, pod: Pod, placement: Placement) -> None:
        cards = ", ".join(sorted({part.uuid for part in placement.slices()}))
        message = f"The pod was bound to {placement.node} without Aliquot; Aliquot placed it on {cards} there"
        await self._event(pod, "Normal", PLACED_LATE, message[:LONGEST_MESSAGE])

    async def has_no_room(self, pod: Pod, why: str) -> None:
        """Fail a pod that was bound to a node without room, so that its controller replaces it. Only if the pod is
        unchanged: another writer may have placed it."""
        meta, why = pod.metadata, why[:LONGEST_MESSAGE]
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

    async def _event(self, pod: Pod, kind: str, reason: str, message: str) -> bool:
        try:
            if not await self._events.write(pod, kind=kind, reason=reason, message=message):
                _log.debug(
                    "dropped an event, because the pod has had too many", pod=pod.key, reason=reason, message=message
                )
        except KubeError as error:
            _log.warning("cannot write an event", pod=pod.key, reason=reason, error=str(error))
            return False
        return True
