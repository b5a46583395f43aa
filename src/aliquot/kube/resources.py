"""The kinds of objects we read and write, and their paths."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from aliquot.model import Node, Object, Pod


class LeaseSpec(msgspec.Struct, rename="camel", frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True):
    spec: LeaseSpec = LeaseSpec()


class ConfigMap(Object, frozen=True):
    data: dict[str, str] | None = None


Kind = TypeVar("Kind", bound=Object)


@dataclass(frozen=True)
class Resource(Generic[Kind]):
    prefix: str
    plural: str
    type: type[Kind]
    namespaced: bool

    def path(self, namespace: str = "", name: str = "", part: str = "") -> str:
        """The path of all objects, of those in a namespace, of one object, or of a part of it."""
        where = f"namespaces/{namespace}/" if self.namespaced and namespace else ""
        return "/".join(filter(None, (self.prefix, f"{where}{self.plural}", name, part)))


PODS = Resource("api/v1", "pods", Pod, namespaced=True)
NODES = Resource("api/v1", "nodes", Node, namespaced=False)
CONFIG_MAPS = Resource("api/v1", "configmaps", ConfigMap, namespaced=True)
EVENTS = Resource("api/v1", "events", Object, namespaced=True)
LEASES = Resource("apis/coordination.k8s.io/v1", "leases", Lease, namespaced=True)
