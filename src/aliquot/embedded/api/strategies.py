"""The rules of the resources that need few: nodes, namespaces, events, leases, ConfigMaps, Secrets, Services,
budgets, quotas, priority classes."""

from base64 import b64encode

from aliquot.apiserver.objects import Object, dig
from aliquot.apiserver.statuses import FieldError, forbidden
from aliquot.embedded.api import policy_shapes, shapes
from aliquot.embedded.api.pod_resources import amount_errors, limit_errors
from aliquot.embedded.api.strategy import Strategy

_NAMESPACE_LABEL = "kubernetes.io/metadata.name"


def _canonical_node(node: Object) -> Object:
    """Allocatable defaults to capacity."""
    status = dict(node.get("status", {}))
    for side in ("capacity", "allocatable"):
        if side in status:
            status[side] = {name: str(amount) for name, amount in status[side].items()}
    if "capacity" in status:
        status.setdefault("allocatable", status["capacity"])
    return {**node, "spec": node.get("spec", {}), "status": status}


def _node_errors(node: Object) -> list[FieldError]:
    return [
        error
        for side in ("capacity", "allocatable")
        for error in amount_errors(f"status.{side}", dig(node, "status", side) or {})
    ]


def _new_namespace(namespace: Object) -> Object:
    metadata = namespace["metadata"]
    labels = {**(metadata.get("labels") or {}), _NAMESPACE_LABEL: metadata["name"]}
    active = {"status": {"phase": "Active"}, "spec": {"finalizers": ["kubernetes"]}}
    return {**namespace, "metadata": {**metadata, "labels": labels}, **active}


def _sealed_errors(old: Object, new: Object) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    fields = ("data", "binaryData", "immutable")
    changed = [field for field in fields if old.get(field) != new.get(field)]
    return [forbidden(field, "field is immutable when `immutable` is set") for field in changed]


def _encoded_secret(secret: Object) -> Object:
    texts = secret.get("stringData", {})
    encoded = {name: b64encode(text.encode()).decode() for name, text in texts.items()}
    plain = {name: value for name, value in secret.items() if name != "stringData"}
    data = {**secret.get("data", {}), **encoded}
    return {"type": "Opaque", **plain, **({"data": data} if data else {})}


def _service_with_type(service: Object) -> Object:
    return {**service, "spec": {"type": "ClusterIP", **service.get("spec", {})}}


def _new_budget(budget: Object) -> Object:
    """A new budget allows no disruptions: nobody counts its pods here."""
    counts = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
    return {**budget, "status": dict.fromkeys(counts, 0)}


def _with_preemption(priority_class: Object) -> Object:
    return {"preemptionPolicy": "PreemptLowerPriority", "value": 0, **priority_class}


def _class_changes(old: Object, new: Object) -> list[FieldError]:
    changed = [name for name in ("value", "preemptionPolicy") if old.get(name) != new.get(name)]
    return [forbidden(name, "may not be changed in an update.") for name in changed]


def _canonical_quota(quota: Object) -> Object:
    spec = quota.get("spec", {})
    hard = {name: str(amount) for name, amount in (spec.get("hard") or {}).items()}
    return {**quota, "spec": {**spec, "hard": hard}}


def _quota_errors(quota: Object) -> list[FieldError]:
    spec = quota["spec"]
    scopes = [name for name in ("scopes", "scopeSelector") if spec.get(name)]
    found = [forbidden(f"spec.{name}", "the embedded cluster does not support quota scopes") for name in scopes]
    return [*found, *limit_errors("spec.hard", spec["hard"])]


NODE = Strategy(shape=shapes.Node, defaults=_canonical_node, errors=_node_errors)
NAMESPACE = Strategy(shape=shapes.WithSpecAndStatus, on_create=_new_namespace)
EVENT = Strategy(shape=shapes.Event, created_by_update=True)
LEASE = Strategy(shape=shapes.Lease, needs_revision=True, created_by_update=True)
CONFIG_MAP = Strategy(shape=shapes.Data, update_errors=_sealed_errors)
SECRET = Strategy(shape=shapes.Data, defaults=_encoded_secret, update_errors=_sealed_errors)
SERVICE = Strategy(shape=shapes.WithSpecAndStatus, defaults=_service_with_type, returned_when_deleted=True)
SERVICE_ACCOUNT = Strategy(returned_when_deleted=True)
BUDGET = Strategy(shape=shapes.Budget, on_create=_new_budget, counts_generations=True)
CLAIM = Strategy(shape=shapes.WithSpecAndStatus, returned_when_deleted=True)
ROLE = Strategy(shape=policy_shapes.Role)
ROLE_BINDING = Strategy(shape=policy_shapes.RoleBinding)
POLICY = Strategy(shape=policy_shapes.Policy, counts_generations=True, returned_when_deleted=True)
POLICY_BINDING = Strategy(shape=policy_shapes.PolicyBinding, counts_generations=True, returned_when_deleted=True)
PRIORITY_CLASS = Strategy(shape=shapes.PriorityClass, defaults=_with_preemption, update_errors=_class_changes)
RESOURCE_QUOTA = Strategy(
    shape=shapes.ResourceQuota, defaults=_canonical_quota, errors=_quota_errors, returned_when_deleted=True
)
