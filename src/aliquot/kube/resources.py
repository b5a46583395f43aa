"""The kinds of objects we read and write, and their paths."""

import re
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from aliquot.kube.errors import NotSent
from aliquot.kube.selectors import LabelSelector
from aliquot.model import Node, Object, Pod
from aliquot.model.pending_pod import PendingPod

_PIECE = re.compile(r"(?!\.\.?$)[A-Za-z0-9._:-]{1,253}")
"""Wider than the API server's rules for most kinds, but never a path segment with another meaning."""


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


class Secret(Object, frozen=True):
    data: dict[str, str] | None = None
    """Values in base64."""


class ServiceReference(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    namespace: str = ""


class ApiServiceSpec(msgspec.Struct, rename="camel", frozen=True):
    service: ServiceReference | None = None
    """None if kube-apiserver serves the group itself."""
    ca_bundle: str | None = None
    """PEM in base64."""
    insecure_skip_tls_verify: bool = msgspec.field(name="insecureSkipTLSVerify", default=False)


class ApiService(Object, frozen=True):
    spec: ApiServiceSpec = ApiServiceSpec()


class BudgetSpec(msgspec.Struct, rename="camel", frozen=True):
    selector: LabelSelector | None = None


class BudgetStatus(msgspec.Struct, rename="camel", frozen=True):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str | None] | None = None
    """Pods whose eviction the API server has already counted, by name, with the time."""


class PodDisruptionBudget(Object, frozen=True):
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class InvolvedObject(msgspec.Struct, rename="camel", frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class EventSource(msgspec.Struct, rename="camel", frozen=True):
    component: str = ""


class Event(Object, frozen=True):
    """Kubernetes' writers leave out, or set to null, what does not fit their way of counting."""

    involved_object: InvolvedObject = InvolvedObject()
    type: str = ""
    reason: str = ""
    message: str = ""
    source: EventSource = EventSource()
    reporting_component: str = ""
    reporting_instance: str = ""
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def last_seen(self) -> str:
        return self.last_timestamp or self.event_time or self.first_timestamp or ""


class PolicyBindingSpec(msgspec.Struct, rename="camel", frozen=True):
    validation_actions: list[str] | None = None


class PolicyBinding(Object, frozen=True):
    """A ValidatingAdmissionPolicyBinding."""

    spec: PolicyBindingSpec = PolicyBindingSpec()


ObjectT = TypeVar("ObjectT", bound=Object)


@dataclass(frozen=True)
class ApiResource(Generic[ObjectT]):
    prefix: str
    plural: str
    type: type[ObjectT]
    namespaced: bool

    def path(self, namespace: str = "", name: str = "", part: str = "") -> str:
        """The path of all objects, of a namespace's objects, of one object, or of a subresource.

        Raises NotSent for a name that would lead to another path.
        """
        for piece in (namespace, name):
            if piece and not _PIECE.fullmatch(piece):
                raise NotSent(f"{piece[:64]!r} is not a valid name of a Kubernetes object")
        where = f"namespaces/{namespace}/" if self.namespaced and namespace else ""
        return "/".join(filter(None, (self.prefix, f"{where}{self.plural}", name, part)))


PODS = ApiResource("api/v1", "pods", Pod, namespaced=True)
PENDING_PODS = ApiResource("api/v1", "pods", PendingPod, namespaced=True)
"""Pods, each read with all that kube-scheduler weighs."""
NODES = ApiResource("api/v1", "nodes", Node, namespaced=False)
CONFIG_MAPS = ApiResource("api/v1", "configmaps", ConfigMap, namespaced=True)
SECRETS = ApiResource("api/v1", "secrets", Secret, namespaced=True)
API_SERVICES = ApiResource("apis/apiregistration.k8s.io/v1", "apiservices", ApiService, namespaced=False)
NAMESPACES = ApiResource("api/v1", "namespaces", Object, namespaced=False)
EVENTS = ApiResource("api/v1", "events", Event, namespaced=True)
LEASES = ApiResource("apis/coordination.k8s.io/v1", "leases", Lease, namespaced=True)
POLICY_BINDINGS = ApiResource(
    "apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", PolicyBinding, namespaced=False
)
POD_DISRUPTION_BUDGETS = ApiResource("apis/policy/v1", "poddisruptionbudgets", PodDisruptionBudget, namespaced=True)
