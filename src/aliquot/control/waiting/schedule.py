"""When a waiting pod is judged, and when a new verdict may be written on it.

A write on a pod makes kube-scheduler try it once more, so writes become rarer the more a pod has had. An event wakes
no scheduler, so it is repeated before it expires.
"""

from dataclasses import dataclass

from aliquot.model import Pod
from aliquot.model.admission import PLACEABLE
from aliquot.model.kubernetes import Condition
from aliquot.model.pending_pod import PendingPod

FIRST_SECONDS = 2.0
"""Time for the scheduler to bind a new pod."""
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 60.0
_FIRST_GAP, _LONGEST_GAP = 10.0, 600.0
_REPEAT_SECONDS, _RETRY_SECONDS = 2700.0, 30.0
"""Kubernetes keeps an event for an hour."""
_UNKNOWN_SECONDS = 900.0
"""After this much time the event may be due that an earlier leader wrote before we came."""


@dataclass(frozen=True)
class Told:
    """What to write on a pod: a reason in CamelCase and a sentence. One that is not `urgent` has to last first."""

    reason: str
    message: str
    urgent: bool = True


@dataclass(slots=True)
class Waiting:
    """A pod that waits, and what has been said about it."""

    pod: Pod
    due: float
    """When it is judged next."""
    read: PendingPod | None = None
    """The pod in full, read once."""
    told: Told | None = None
    """The last verdict."""
    told_at: float = 0.0
    pause: float = _FIRST_PAUSE
    gap: float = _FIRST_GAP
    writable: float = 0.0
    """When a write is allowed again."""

    event_due: float = 0.0
    """When the event is written again, if the pod still has the same condition."""

    def __post_init__(self) -> None:
        self.event_due = self.due + _UNKNOWN_SECONDS

    def shows(self, pod: Pod, now: float) -> None:
        """Take in a change of the pod. A leader writes an event with each new condition."""
        before, after = reason_on(self.pod), reason_on(pod)
        is_ours = self.told is not None and after is not None and after.message == self.told.message
        if before != after and not is_ours:
            self.event_due = now + _REPEAT_SECONDS
        self.pod = pod

    def has_event(self, now: float, *, is_written: bool) -> None:
        self.event_due = now + (_REPEAT_SECONDS if is_written else _RETRY_SECONDS)

    def full(self) -> PendingPod | None:
        """The pod in full, with the status and metadata that it has now. None if it has to be read."""
        if self.read is None or not _has_spec(self.read, self.pod):
            return None
        return PendingPod(metadata=self.pod.metadata, spec=self.read.spec, status=self.pod.status)

    def judged(self, told: Told | None, now: float) -> None:
        """Take a verdict. An unchanged one is looked at less and less often."""
        if told != self.told:
            self.told, self.told_at, self.pause = told, now, _FIRST_PAUSE
        self.due, self.pause = now + self.pause, min(_LONGEST_PAUSE, self.pause * 2)

    def may_write(self, now: float) -> bool:
        """Whether the verdict may be written now: it is urgent or has lasted, and the last write is long ago."""
        has_lasted = self.told is not None and (self.told.urgent or now - self.told_at >= _LONGEST_PAUSE)
        return has_lasted and now >= self.writable

    def written(self, now: float) -> None:
        self.writable, self.gap = now + self.gap, min(_LONGEST_GAP, self.gap * 2)


def reason_on(pod: Pod) -> Condition | None:
    """The reason that a leader wrote on a pod; None if there is none."""
    return next((condition for condition in pod.status.conditions or () if condition.type == PLACEABLE), None)


def _has_spec(read: PendingPod, pod: Pod) -> bool:
    """Whether the spec that was read is still the pod's, as far as the informer cache shows it."""
    return all(getattr(read.spec, name) == getattr(pod.spec, name) for name in pod.spec.__struct_fields__)
