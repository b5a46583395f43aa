"""Everything that talks to an API server."""

from aliquot.kube.access import Access, find, from_kubeconfig
from aliquot.kube.client import Client
from aliquot.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Invalid,
    KubeError,
    NoAnswer,
    NotFound,
    NotSent,
    TooManyRequests,
)
from aliquot.kube.informer import Informer
from aliquot.kube.leases import LeaderElector, LeaseTiming
from aliquot.kube.resources import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    ConfigMap,
    PodDisruptionBudget,
)

__all__ = [
    "Access",
    "find",
    "from_kubeconfig",
    "Client",
    "Informer",
    "LeaderElector",
    "LeaseTiming",
    "PODS",
    "NODES",
    "EVENTS",
    "CONFIG_MAPS",
    "ConfigMap",
    "LEASES",
    "POD_DISRUPTION_BUDGETS",
    "PodDisruptionBudget",
    "KubeError",
    "ApiError",
    "AlreadyExists",
    "Conflict",
    "Invalid",
    "NotFound",
    "NotSent",
    "TooManyRequests",
    "NoAnswer",
]
