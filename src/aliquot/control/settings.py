"""What can be set about the control plane; the command's configuration fills it in."""

from dataclasses import dataclass, field
from enum import Enum

from aliquot.kube import LeaseTiming
from aliquot.model import Pod

_DEFAULT_SCHEDULER = "default-scheduler"


class Mode(Enum):
    ACTIVE = "active"
    OBSERVE = "observe"
    """Reads, shows and says what it would have done; writes nothing."""


@dataclass(frozen=True)
class ControlSettings:
    """Times are in seconds.

    `budget` is for a Binding and `look` for a read after it: together, and with a read before, they must stay below the
    time-out of whoever asks (kube-scheduler's extender: 5 s by default). `act_limit` is how long an API server may
    still act on a request that it has accepted: its own request time-out (60 s) and some.
    """

    mode: Mode = Mode.ACTIVE
    alone: bool = False
    """By choice the only server: no Lease and no epoch."""
    namespace: str = "aliquot-system"
    lease: str = "aliquot-server"
    terms: LeaseTiming = field(default_factory=LeaseTiming)
    identity: str = ""
    """Of this process; empty makes one that no other process has."""
    budget: float = 2.5
    look: float = 1.0
    act_limit: float = 70.0
    audit_seconds: float = 60.0
    late_seconds: float = 30.0
    quota_namespace: str = "kube-system"
    quota_name: str = "gpuquota"
    quota_key: str = "gpu_quota"
    """The ConfigMap with the quotas, and where they stand in it."""
    search_seconds: float = 1.0
    """For which one decision may search, over all nodes."""
    hold_seconds: float = 30.0
    """For which a part is kept for a pod that somebody else binds."""
    schedulers: frozenset[str] = frozenset({"default-scheduler", "gpu-scheduler", "hami-scheduler", "volcano"})
    """Whose pods may be bound or have cards kept for them, by schedulerName; empty are all."""
    claims_per_namespace: int = 500
    """Pods of one namespace for which cards are kept or claimed while they are not bound."""

    def serves(self, pod: Pod) -> bool:
        """Whether the pod belongs to a scheduler that we serve."""
        return not self.schedulers or (pod.spec.scheduler_name or _DEFAULT_SCHEDULER) in self.schedulers
