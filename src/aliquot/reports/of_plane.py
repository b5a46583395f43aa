"""Reports of a running control plane, from its informer caches."""

from aliquot.control import ControlPlane
from aliquot.control.waiting.schedule import Told
from aliquot.model.pending_pod import PendingPod
from aliquot.reports.causes import Cause, Outlook
from aliquot.reports.why_waiting import Surroundings, why_waiting

_NOT_OURS = (Cause.OTHER_SCHEDULER, Cause.GATED)
"""Pods on which the leader writes nothing: somebody else holds them back, and knows why."""


def surroundings_of(plane: ControlPlane) -> Surroundings:
    nodes = {node.key: node for node in plane.nodes.all()}
    return Surroundings(nodes, plane.pods_on, plane.heartbeats.silent(), plane.settings.serves)


def leaders_verdict(plane: ControlPlane, pod: PendingPod) -> Told | None:
    """What the leader writes on a pod that waits; None if nothing."""
    verdict = why_waiting(plane.cluster, pod, surroundings_of(plane))
    if verdict.outlook is Outlook.SETTLED or verdict.cause in _NOT_OURS:
        return None
    return Told(verdict.cause.value, verdict.headline, urgent=verdict.outlook is not Outlook.FITS)
