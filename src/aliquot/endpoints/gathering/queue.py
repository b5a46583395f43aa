"""Who waits for GPUs, and why."""

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime

from aliquot import metrics
from aliquot.control import ControlPlane
from aliquot.endpoints.gathering.pauses import Pauses
from aliquot.errors import BadDemand
from aliquot.model import Pod
from aliquot.reports.resource_names import offered_resources, unknown_resources

_ALWAYS = ("not_asked", "new", "gated", "other_scheduler", "bad_demand", "refused")
"""Reasons that are shown even if no pod waits for them, so that a sum is 0 and not absent."""


def gather(plane: ControlPlane, pauses: Pauses) -> Iterator[None]:
    is_known = plane.leadership.may_commit
    counts: Counter[str] = Counter(dict.fromkeys(_ALWAYS, 0) if is_known else {})
    oldest: dict[str, float] = {}
    now, offered = plane.clock.wall_ns() / 1e9, offered_resources(plane.nodes.all())
    for pod in plane.unbound_pods() if is_known else ():
        if reason := why_it_waits(plane, pod, offered):
            counts[reason] += 1
            oldest[reason] = max(oldest.get(reason, 0.0), waited(pod, now))
        yield from pauses()
    metrics.WAITING.rows = [((reason,), count) for reason, count in sorted(counts.items())]
    metrics.OLDEST_WAIT.rows = [((reason,), age) for reason, age in sorted(oldest.items())]


def why_it_waits(plane: ControlPlane, pod: Pod, offered: Collection[str]) -> str:
    """Empty for a pod that does not wait for a GPU. A misspelt resource may be one: `offered` are those of nodes."""
    try:
        dialect = plane.cluster.dialects.of(pod)
    except BadDemand:
        return "bad_demand"
    if dialect is None and not unknown_resources(pod, plane.cluster.dialects, offered):
        return ""
    if pod.spec.scheduling_gates:
        return "gated"
    if not plane.settings.serves(pod):
        return "other_scheduler"
    if reason := plane.requeuer.reason_of(pod.metadata.uid):
        return reason
    conditions = pod.status.conditions or ()
    is_refused = any(each.type == "PodScheduled" and each.status == "False" for each in conditions)
    return "not_asked" if is_refused else "new"


def waited(pod: Pod, now: float) -> float:
    """Seconds since a pod was created, by the API server's clock and ours."""
    try:
        return max(0.0, now - datetime.fromisoformat(pod.metadata.creation_timestamp or "").timestamp())
    except ValueError:
        return 0.0
