"""The rows of nodes, namespaces, events, leases, ConfigMaps, disruption budgets, quotas and priority classes."""

from datetime import datetime

from aliquot.apiserver.ages import UNKNOWN, age
from aliquot.apiserver.objects import Object, dig, text_at
from aliquot.apiserver.tables import AGE, NAME, Cells, Column, TableFormat, age_of, name_of

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"


def _node_status(node: Object) -> str:
    conditions = dig(node, "status", "conditions") or []
    ready = next((c for c in conditions if c.get("type") == "Ready"), None)
    word = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{word},SchedulingDisabled" if dig(node, "spec", "unschedulable") else word


def _node_roles(node: Object) -> str:
    labels = dig(node, "metadata", "labels") or {}
    roles = {name.removeprefix(_ROLE_PREFIX) for name in labels if name.startswith(_ROLE_PREFIX)}
    return ",".join(sorted((roles | {labels.get(_ROLE_LABEL, "")}) - {""})) or "<none>"


def _node_address(node: Object, kind: str) -> str:
    addresses = dig(node, "status", "addresses") or []
    return next((a.get("address", "") for a in addresses if a.get("type") == kind), "<none>")


def _kernel(info: Object) -> str:
    version = info.get("kernelVersion") or UNKNOWN
    return f"{version} ({info['architecture']})" if info.get("architecture") else version


def _node_cells(node: Object, at: datetime) -> Cells:
    info = dig(node, "status", "nodeInfo") or {}
    return [
        name_of(node),
        _node_status(node),
        _node_roles(node),
        age_of(node, at),
        info.get("kubeletVersion", ""),
        _node_address(node, "InternalIP"),
        _node_address(node, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        _kernel(info),
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _event_times(event: Object, at: datetime) -> tuple[str, str]:
    """When the event was first and last seen. Old recorders, new recorders and series use different fields."""
    first = text_at(event, "firstTimestamp") or text_at(event, "eventTime")
    last = text_at(event, "series", "lastObservedTime") or text_at(event, "lastTimestamp") or first
    return age(first, at), age(last, at)


def _event_source(event: Object) -> str:
    component = text_at(event, "source", "component") or text_at(event, "reportingComponent")
    instance = text_at(event, "source", "host") or text_at(event, "reportingInstance")
    return ", ".join(part for part in (component, instance) if part)


def _event_cells(event: Object, at: datetime) -> Cells:
    first, last = _event_times(event, at)
    target = [text_at(event, "involvedObject", "kind").lower(), text_at(event, "involvedObject", "name")]
    return [
        last,
        text_at(event, "type"),
        text_at(event, "reason"),
        "/".join(part for part in target if part),
        text_at(event, "involvedObject", "fieldPath"),
        _event_source(event),
        text_at(event, "message").strip(),
        first,
        dig(event, "series", "count") or event.get("count") or 1,
        name_of(event),
    ]


def _budget_cells(budget: Object, at: datetime) -> Cells:
    spec = budget.get("spec") or {}
    bounds = [str(spec.get(name, "N/A")) for name in ("minAvailable", "maxUnavailable")]
    return [name_of(budget), *bounds, dig(budget, "status", "disruptionsAllowed") or 0, age_of(budget, at)]


def _quota_cells(quota: Object, at: datetime) -> Cells:
    hard, used = dig(quota, "spec", "hard") or {}, dig(quota, "status", "used") or {}
    lines = {name: f"{name}: {used.get(name, 0)}/{amount}" for name, amount in sorted(hard.items())}
    limits = [line for name, line in lines.items() if name.startswith("limits.")]
    requests = [line for name, line in lines.items() if not name.startswith("limits.")]
    return [name_of(quota), ", ".join(requests), ", ".join(limits), age_of(quota, at)]


def _class_cells(found: Object, at: datetime) -> Cells:
    is_default = bool(found.get("globalDefault"))
    return [name_of(found), found.get("value", 0), is_default, age_of(found, at), found.get("preemptionPolicy", "")]


NODES = TableFormat(
    (
        NAME,
        Column("Status", "Whether the node is ready."),
        Column("Roles", "What the node's role labels say."),
        AGE,
        Column("Version", "The kubelet's version."),
        Column("Internal-IP", "The node's address inside the cluster.", wide=True),
        Column("External-IP", "The node's address outside the cluster.", wide=True),
        Column("OS-Image", "The operating system.", wide=True),
        Column("Kernel-Version", "The kernel's version.", wide=True),
        Column("Container-Runtime", "The container runtime and its version.", wide=True),
    ),
    _node_cells,
)
NAMESPACES = TableFormat(
    (NAME, Column("Status", "Active, or Terminating."), AGE),
    lambda obj, at: [name_of(obj), text_at(obj, "status", "phase"), age_of(obj, at)],
)
EVENTS = TableFormat(
    (
        Column("Last Seen", "When it happened last."),
        Column("Type", "Normal or Warning."),
        Column("Reason", "Why, in one word."),
        Column("Object", "What it happened to."),
        Column("Subobject", "Which part of the object.", wide=True),
        Column("Source", "Who reported it.", wide=True),
        Column("Message", "What happened."),
        Column("First Seen", "When it happened first.", wide=True),
        Column("Count", "How often it happened.", wide=True),
        Column("Name", "The event's own name.", wide=True),
    ),
    _event_cells,
)
LEASES = TableFormat(
    (NAME, Column("Holder", "Who holds the lease."), AGE),
    lambda obj, at: [name_of(obj), text_at(obj, "spec", "holderIdentity"), age_of(obj, at)],
)
BUDGETS = TableFormat(
    (
        NAME,
        Column("Min Available", "How many pods must stay."),
        Column("Max Unavailable", "How many pods may be missing."),
        Column("Allowed Disruptions", "How many pods may end now.", type="integer"),
        AGE,
    ),
    _budget_cells,
)
CONFIG_MAPS = TableFormat(
    (NAME, Column("Data", "How many entries it has.", type="integer"), AGE),
    lambda obj, at: [name_of(obj), len(obj.get("data", {})) + len(obj.get("binaryData", {})), age_of(obj, at)],
)
RESOURCE_QUOTAS = TableFormat(
    (
        NAME,
        Column("Request", "What pods may request, and do."),
        Column("Limit", "What pods may be limited to, and are."),
        AGE,
    ),
    _quota_cells,
)
PRIORITY_CLASSES = TableFormat(
    (
        NAME,
        Column("Value", "The priority of its pods.", type="integer"),
        Column("Global-Default", "Whether pods without a class have it."),
        AGE,
        Column("PreemptionPolicy", "Whether its pods preempt others."),
    ),
    _class_cells,
)
