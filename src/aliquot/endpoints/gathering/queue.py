"""Who waits for GPUs, and why."""

from collections import Counter
from collections.abc import Collection, Iterator

from aliquot import metrics
from aliquot.clock import seconds_of
from aliquot.control import ControlPlane
from aliquot.endpoints.gathering.pauses import Pauses
from aliquot.errors import BadDemand
from aliquot.model import Pod
from aliquot.reports.causes import Cause
from aliquot.reports.resource_names import offered_resources, unknown_resources


def gather(plane: ControlPlane, pauses: Pauses) -> Iterator[None]:
    is_known = plane.leadership.may_commit
    # shown even if no pod waits, so that a sum is 0 and not absent
    counts: Counter[str] = Counter({Cause.UNKNOWN.value: 0} if is_known else {})
    oldest: dict[str, float] = {}
    now, offered = plane.clock.wall_ns() / 1e9, offered_resources(plane.nodes.all())
    for pod in plane.unbound_pods() if is_known else ():
        if asks_for_cards(plane, pod, offered):
            reason = why_it_waits(plane, pod)
            counts[reason] += 1
            oldest[reason] = max(oldest.get(reason, 0.0), waited(pod, now))
        yield from pauses()
    metrics.WAITING.rows = [((reason,), count) for reason, count in sorted(counts.items())]
    metrics.OLDEST_WAIT.rows = [((reason,), age) for reason, age in sorted(oldest.items())]


def asks_for_cards(plane: ControlPlane, pod: Pod, offered: Collection[str]) -> bool:
    """A misspelt resource may be a card: `offered` are the resources of nodes."""
    try:
        dialect = plane.cluster.dialects.of(pod)
    except BadDemand:
        return True
    return dialect is not None or bool(unknown_resources(pod, plane.cluster.dialects, offered))


def why_it_waits(plane: ControlPlane, pod: Pod) -> str:
    """The cause that the leader found, which is also on the pod; one of `Cause`."""
    if pod.spec.scheduling_gates:
        return Cause.GATED.value
    if not plane.settings.serves(pod):
        return Cause.OTHER_SCHEDULER.value
    return plane.waiting_reasons.reason_of(pod.metadata.uid) or Cause.UNKNOWN.value


def waited(pod: Pod, now: float) -> float:
    """Seconds since a pod was created, by the API server's clock and ours."""
    created = seconds_of(pod.metadata.creation_timestamp)
    return 0.0 if created is None else max(0.0, now - created)
