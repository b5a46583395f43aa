"""Reports of a running control plane, from its informer caches."""

from aliquot.control import ControlPlane
from aliquot.control.placing.pod_events import LONGEST_MESSAGE
from aliquot.control.waiting.schedule import Told
from aliquot.model.pending_pod import PendingPod
from aliquot.reports.causes import Cause, Outlook
from aliquot.reports.view import ClusterView
from aliquot.reports.why_waiting import Surroundings, why_waiting

_NOT_OURS = (Cause.OTHER_SCHEDULER, Cause.GATED)
"""Pods on which the leader writes nothing: others hold them back, and know why."""


def surroundings_of(plane: ControlPlane) -> Surroundings:
    nodes = {node.key: node for node in plane.nodes.all()}
    return Surroundings(nodes, plane.pods_on, plane.heartbeats.silent(), plane.settings.serves)


def view_of_plane(plane: ControlPlane) -> ClusterView:
    """Everything that the server knows. Who may see what of it is for the caller of this function."""
    heartbeats = plane.heartbeats
    return ClusterView(
        plane.cluster,
        plane.clock.wall_ns() / 1e9,
        {node.key: node for node in plane.nodes.all()},
        {pod.metadata.uid: pod for pod in plane.pods.all()},
        heartbeats.silent(),
        {node: sample.load for node, sample in heartbeats.samples.items() if heartbeats.has_fresh_load(node)},
        read_in_full=plane.waiting_reasons.in_full,
    )


def leaders_verdict(plane: ControlPlane, pod: PendingPod) -> Told | None:
    """What the leader writes on a pod that waits; None if nothing."""
    if plane.cluster.ledger.nodes_of(pod.metadata.uid):
        return None  # about to be bound: a write would cross the Binding
    verdict = why_waiting(plane.cluster, pod, surroundings_of(plane))
    if verdict.outlook is Outlook.SETTLED or verdict.cause in _NOT_OURS:
        return None
    message = verdict.headline[:LONGEST_MESSAGE]  # what the pod will say: a longer one would never be written already
    return Told(verdict.cause.value, message, urgent=verdict.outlook is not Outlook.FITS)
