"""The Kubernetes objects that reports are made of, as a value that can be written to a file and read again.

It has only the fields of our model, so it carries no environment, no command lines and no Secrets.
"""

import msgspec

from aliquot.kube.resources import Event, Lease
from aliquot.model import Node, Pod
from aliquot.model.pending_pod import PendingPod


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
