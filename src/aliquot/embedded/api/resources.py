"""Every served resource. A new entry here adds the resource to all routes and to discovery.

Of the workloads there are Deployments, ReplicaSets, StatefulSets and Jobs. DaemonSets, CronJobs and custom resources
are not served.
"""

from dataclasses import dataclass, replace

from aliquot.apiserver.resources import VERBS, ServedResource, Subresource
from aliquot.embedded.api import (
    other_tables,
    pod_parts,
    pod_table,
    pods,
    strategies,
    workload_tables,
    workloads,
)
from aliquot.embedded.api.strategy import PLAIN, Strategy


@dataclass(frozen=True, slots=True)
class WritableResource(ServedResource):
    """A resource that clients may change, by the rules of its strategy."""

    strategy: Strategy = PLAIN


_STATUS = Subresource("status", ("get", "patch", "update"))
_EVENT_FIELDS = (
    *(f"involvedObject.{part}" for part in ("kind", "namespace", "name", "uid", "apiVersion")),
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)

PODS = WritableResource(
    "pods",
    "Pod",
    short_names=("po",),
    categories=("all",),
    subresources=(
        _STATUS,
        Subresource("binding", ("create",), ("", "v1", "Binding")),
        Subresource("eviction", ("create",), ("policy", "v1", "Eviction")),
        Subresource("log", ("get",)),
        *(Subresource(name, ("create", "get")) for name in pod_parts.INTO_A_CONTAINER),
        *(Subresource(part, ("get", "patch", "update")) for part in pod_parts.PARTS),
    ),
    fields=(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    table=pod_table.PODS,
    strategy=pods.STRATEGY,
)
NAMESPACES = WritableResource(
    "namespaces",
    "Namespace",
    namespaced=False,
    short_names=("ns",),
    verbs=tuple(verb for verb in VERBS if verb != "deletecollection"),
    subresources=(_STATUS,),
    fields=("status.phase",),
    table=other_tables.NAMESPACES,
    strategy=strategies.NAMESPACE,
)
BINDINGS = WritableResource("bindings", "Binding", verbs=("create",))
CONFIG_MAPS = WritableResource(
    "configmaps",
    "ConfigMap",
    short_names=("cm",),
    table=other_tables.CONFIG_MAPS,
    strategy=strategies.CONFIG_MAP,
)
EVENTS = WritableResource(
    "events",
    "Event",
    short_names=("ev",),
    fields=_EVENT_FIELDS,
    table=other_tables.EVENTS,
    strategy=strategies.EVENT,
)
NODES = WritableResource(
    "nodes",
    "Node",
    namespaced=False,
    short_names=("no",),
    subresources=(_STATUS,),
    fields=("spec.unschedulable",),
    table=other_tables.NODES,
    strategy=strategies.NODE,
)
CLAIMS = WritableResource(
    "persistentvolumeclaims",
    "PersistentVolumeClaim",
    short_names=("pvc",),
    subresources=(_STATUS,),
    strategy=strategies.CLAIM,
)
SECRETS = WritableResource("secrets", "Secret", fields=("type",), strategy=strategies.SECRET)
SERVICE_ACCOUNTS = WritableResource(
    "serviceaccounts", "ServiceAccount", short_names=("sa",), strategy=strategies.SERVICE_ACCOUNT
)
SERVICES = WritableResource(
    "services",
    "Service",
    short_names=("svc",),
    categories=("all",),
    subresources=(_STATUS,),
    strategy=strategies.SERVICE,
)
ACCESS_REVIEWS = WritableResource(
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    "authorization.k8s.io",
    namespaced=False,
    verbs=("create",),
)
SELF_REVIEWS = WritableResource(
    "selfsubjectreviews", "SelfSubjectReview", "authentication.k8s.io", namespaced=False, verbs=("create",)
)
RESOURCE_QUOTAS = WritableResource(
    "resourcequotas",
    "ResourceQuota",
    short_names=("quota",),
    subresources=(_STATUS,),
    table=other_tables.RESOURCE_QUOTAS,
    strategy=strategies.RESOURCE_QUOTA,
)
PRIORITY_CLASSES = WritableResource(
    "priorityclasses",
    "PriorityClass",
    "scheduling.k8s.io",
    namespaced=False,
    short_names=("pc",),
    table=other_tables.PRIORITY_CLASSES,
    strategy=strategies.PRIORITY_CLASS,
)
_ROLES = "rbac.authorization.k8s.io"
ROLES = WritableResource("roles", "Role", _ROLES, strategy=strategies.ROLE)
ROLE_BINDINGS = WritableResource("rolebindings", "RoleBinding", _ROLES, strategy=strategies.ROLE_BINDING)
CLUSTER_ROLES = WritableResource("clusterroles", "ClusterRole", _ROLES, namespaced=False, strategy=strategies.ROLE)
CLUSTER_ROLE_BINDINGS = WritableResource(
    "clusterrolebindings", "ClusterRoleBinding", _ROLES, namespaced=False, strategy=strategies.ROLE_BINDING
)
POLICIES = WritableResource(
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    "admissionregistration.k8s.io",
    namespaced=False,
    strategy=strategies.POLICY,
)
POLICY_BINDINGS = replace(
    POLICIES,
    plural="validatingadmissionpolicybindings",
    kind="ValidatingAdmissionPolicyBinding",
    strategy=strategies.POLICY_BINDING,
)
OTHERS_ACCESS_REVIEWS = replace(ACCESS_REVIEWS, plural="subjectaccessreviews", kind="SubjectAccessReview")
TOKEN_REVIEWS = WritableResource(
    "tokenreviews", "TokenReview", "authentication.k8s.io", namespaced=False, verbs=("create",)
)
LEASES = WritableResource(
    "leases",
    "Lease",
    "coordination.k8s.io",
    table=other_tables.LEASES,
    strategy=strategies.LEASE,
)
BUDGETS = WritableResource(
    "poddisruptionbudgets",
    "PodDisruptionBudget",
    "policy",
    short_names=("pdb",),
    subresources=(_STATUS,),
    table=other_tables.BUDGETS,
    strategy=strategies.BUDGET,
)
_SCALE = Subresource("scale", ("get", "patch", "update"), ("autoscaling", "v1", "Scale"))
DEPLOYMENTS = WritableResource(
    "deployments",
    "Deployment",
    "apps",
    short_names=("deploy",),
    categories=("all",),
    subresources=(_SCALE, _STATUS),
    table=workload_tables.DEPLOYMENTS,
    strategy=workloads.DEPLOYMENT,
)
REPLICA_SETS = WritableResource(
    "replicasets",
    "ReplicaSet",
    "apps",
    short_names=("rs",),
    categories=("all",),
    subresources=(_SCALE, _STATUS),
    fields=("status.replicas",),
    table=workload_tables.REPLICA_SETS,
    strategy=workloads.REPLICA_SET,
)
STATEFUL_SETS = WritableResource(
    "statefulsets",
    "StatefulSet",
    "apps",
    short_names=("sts",),
    categories=("all",),
    subresources=(_SCALE, _STATUS),
    table=workload_tables.STATEFUL_SETS,
    strategy=workloads.STATEFUL_SET,
)
JOBS = WritableResource(
    "jobs",
    "Job",
    "batch",
    categories=("all",),
    subresources=(_STATUS,),
    fields=("status.successful",),
    table=workload_tables.JOBS,
    strategy=workloads.JOB,
)

RESOURCES = (
    BINDINGS,
    CONFIG_MAPS,
    EVENTS,
    NAMESPACES,
    NODES,
    CLAIMS,
    PODS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    TOKEN_REVIEWS,
    ACCESS_REVIEWS,
    OTHERS_ACCESS_REVIEWS,
    SELF_REVIEWS,
    LEASES,
    BUDGETS,
    ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    POLICIES,
    POLICY_BINDINGS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    JOBS,
    PRIORITY_CLASSES,
)
BY_PATH = {(resource.group, resource.version, resource.plural): resource for resource in RESOURCES}
BY_COLLECTION = {resource.collection: resource for resource in RESOURCES}


def find(plural: str, group: str = "", version: str = "v1") -> WritableResource | None:
    return BY_PATH.get((group, version, plural))
