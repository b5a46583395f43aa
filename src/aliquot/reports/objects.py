"""The Kubernetes objects that reports are made of, as a value that can be written to a file and read again.

It has only the fields of our model, so it carries no environment, no command lines and no Secrets.
"""

from dataclasses import dataclass
from enum import Enum

import msgspec

from aliquot.errors import BadConfig
from aliquot.kube.resources import Event, Lease
from aliquot.model import Node, Pod
from aliquot.model.installed_names import QUOTA_KEY, QUOTA_MAP, QUOTA_NAMESPACE
from aliquot.model.pending_pod import PendingPod


class Extra(Enum):
    """What a report may need besides nodes and pods."""

    LEASES = "leases"
    QUOTAS = "quotas"
    MARKS = "marks"
    EVENTS = "events"
    WAITING = "waiting"


@dataclass(frozen=True)
class QuotaPlace:
    """The ConfigMap with the quotas, and its key. The defaults are the server's."""

    namespace: str = QUOTA_NAMESPACE
    name: str = QUOTA_MAP
    key: str = QUOTA_KEY

    @classmethod
    def named(cls, text: str) -> "QuotaPlace":
        """By NAMESPACE/NAME or NAMESPACE/NAME/KEY; empty for the default. Raises BadConfig."""
        parts = text.split("/") if text else []
        if not all(parts) or len(parts) not in (0, 2, 3):
            raise BadConfig(f"--quotas {text}: write NAMESPACE/NAME or NAMESPACE/NAME/KEY")
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Missing(msgspec.Struct, rename="camel", frozen=True):
    """A right that the reader does not have."""

    resource: str
    """Such as `nodes`."""
    what: str
    """What it would show."""
    rule: str
    """The RBAC rule to add."""


class ClusterObjects(msgspec.Struct, rename="camel", frozen=True):
    at: float
    """When they were read, in seconds since the epoch."""
    nodes: list[Node] = []
    pods: list[Pod] = []
    leases: list[Lease] = []
    """Of the agents."""
    quotas: str | None = None
    unhealthy: dict[str, str] = {}
    """gpushare's lists of unhealthy cards, by node."""
    events: list[Event] = []
    waiting: list[PendingPod] = []
    """The pods that are not bound, in full."""
    namespace: str = ""
    """The namespace whose pods were read; empty for all."""
    missing: list[Missing] = []
