"""Everything that talks to an API server."""

from aliquot.kube.access import Access, find, from_kubeconfig
from aliquot.kube.client import Client
from aliquot.kube.errors import ApiError, Conflict, KubeError, NoAnswer, NotFound, NotSent, TooManyRequests
from aliquot.kube.informer import Informer
from aliquot.kube.leases import Elector, Terms
from aliquot.kube.resources import EVENTS, LEASES, NODES, PODS

__all__ = [
    "Access",
    "find",
    "from_kubeconfig",
    "Client",
    "Informer",
    "Elector",
    "Terms",
    "PODS",
    "NODES",
    "EVENTS",
    "LEASES",
    "KubeError",
    "ApiError",
    "Conflict",
    "NotFound",
    "NotSent",
    "TooManyRequests",
    "NoAnswer",
]
