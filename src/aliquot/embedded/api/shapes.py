"""The types of the fields that we read, so that later code can rely on them.

A body with other types gets a 400 with the path of the field. Fields that nothing here reads are not checked.
"""

from typing import Any, TypeVar

import msgspec

from aliquot.apiserver.objects import Object
from aliquot.apiserver.statuses import BadRequest

ShapeT = TypeVar("ShapeT", bound=msgspec.Struct)
_Strings = dict[str, str] | None
_Amounts = dict[str, str | int | float] | None


class _Shaped(msgspec.Struct, rename="camel", kw_only=True):
    pass


class OwnerReference(_Shaped):
    uid: str
    kind: str
    name: str


class Metadata(_Shaped):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    generation: int | None = None
    labels: _Strings = None
    annotations: _Strings = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None


class Anything(_Shaped):
    api_version: str | None = None
    kind: str | None = None
    metadata: Metadata | None = None


class WithSpecAndStatus(Anything):
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class Resources(_Shaped):
    limits: _Amounts = None
    requests: _Amounts = None


class Container(_Shaped):
    name: str | None = None
    image: str | None = None
    restart_policy: str | None = None
    resources: Resources | None = None


class PodSpec(_Shaped):
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    restart_policy: str | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    termination_grace_period_seconds: int | None = None
    scheduling_gates: list[dict[str, str]] | None = None
    tolerations: list[dict[str, Any]] | None = None
    readiness_gates: list[dict[str, str]] | None = None


class Ended(_Shaped):
    exit_code: int = 0
    signal: int | None = None
    reason: str | None = None
    finished_at: str | None = None


class Waiting(_Shaped):
    reason: str | None = None


class ContainerState(_Shaped):
    waiting: Waiting | None = None
    running: dict[str, Any] | None = None
    terminated: Ended | None = None


class ContainerStatus(_Shaped):
    name: str
    ready: bool | None = None
    started: bool | None = None
    restart_count: int | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class Condition(_Shaped):
    type: str
    status: str
    reason: str | None = None


class PodStatus(_Shaped):
    phase: str | None = None
    reason: str | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    pod_i_ps: list[dict[str, str]] | None = msgspec.field(default=None, name="podIPs")


class Pod(Anything):
    spec: PodSpec | None = None
    status: PodStatus | None = None


class NodeSpec(_Shaped):
    unschedulable: bool | None = None
    taints: list[dict[str, str]] | None = None


class NodeStatus(_Shaped):
    capacity: _Amounts = None
    allocatable: _Amounts = None
    conditions: list[Condition] | None = None
    addresses: list[dict[str, str]] | None = None
    node_info: dict[str, Any] | None = None


class Node(Anything):
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class PriorityClass(Anything):
    value: int | None = None
    global_default: bool | None = None
    preemption_policy: str | None = None
    description: str | None = None


class ResourceQuotaSpec(_Shaped):
    hard: _Amounts = None
    scopes: list[str] | None = None
    scope_selector: dict[str, Any] | None = None


class ResourceQuota(Anything):
    spec: ResourceQuotaSpec | None = None
    status: dict[str, Any] | None = None


class LabelSelectorRequirement(_Shaped):
    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(_Shaped):
    match_labels: _Strings = None
    match_expressions: list[LabelSelectorRequirement] | None = None


class PodTemplate(_Shaped):
    metadata: Metadata | None = None
    spec: PodSpec | None = None


class RollingUpdate(_Shaped):
    max_surge: int | str | None = None
    max_unavailable: int | str | None = None
    partition: int | None = None


class RolloutStrategy(_Shaped):
    type: str | None = None
    rolling_update: RollingUpdate | None = None


class WorkloadSpec(_Shaped):
    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplate | None = None
    strategy: RolloutStrategy | None = None
    update_strategy: RolloutStrategy | None = None
    pod_management_policy: str | None = None
    service_name: str | None = None
    paused: bool | None = None
    min_ready_seconds: int | None = None
    revision_history_limit: int | None = None
    progress_deadline_seconds: int | None = None


class WorkloadStatus(_Shaped):
    replicas: int | None = None
    ready_replicas: int | None = None
    available_replicas: int | None = None
    updated_replicas: int | None = None
    conditions: list[Condition] | None = None


class Workload(Anything):
    """Deployments and ReplicaSets."""

    spec: WorkloadSpec | None = None
    status: WorkloadStatus | None = None


class JobSpec(_Shaped):
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool | None = None
    manual_selector: bool | None = None
    selector: LabelSelector | None = None
    template: PodTemplate | None = None


class JobStatus(_Shaped):
    active: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    start_time: str | None = None
    completion_time: str | None = None
    conditions: list[Condition] | None = None


class Job(Anything):
    spec: JobSpec | None = None
    status: JobStatus | None = None


class ScaleSpec(_Shaped):
    replicas: int | None = None


class Scale(Anything):
    spec: ScaleSpec | None = None


class Series(_Shaped):
    count: int | None = None
    last_observed_time: str | None = None


class Event(Anything):
    involved_object: dict[str, str] | None = None
    source: dict[str, str] | None = None
    series: Series | None = None
    count: int | None = None
    message: str | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None


class LeaseSpec(_Shaped):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None


class Lease(Anything):
    spec: LeaseSpec | None = None


class BudgetSpec(_Shaped):
    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class BudgetStatus(_Shaped):
    disruptions_allowed: int | None = None
    disrupted_pods: dict[str, str | None] | None = None


class Budget(Anything):
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


class Data(Anything):
    """ConfigMaps and Secrets."""

    data: _Strings = None
    binary_data: _Strings = None
    string_data: _Strings = None
    immutable: bool | None = None
    type: str | None = None


class ObjectReference(_Shaped):
    kind: str | None = None
    name: str | None = None


class Binding(Anything):
    target: ObjectReference | None = None


class Preconditions(_Shaped):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(_Shaped):
    grace_period_seconds: int | None = None
    preconditions: Preconditions | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    dry_run: list[str] | None = None


class Eviction(Anything):
    delete_options: DeleteOptions | None = None


def read(obj: Any, shape: type[ShapeT], kind: str) -> ShapeT:
    """The body as that type. Raises BadRequest that names the field."""
    try:
        return msgspec.convert(obj, shape)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the request cannot be read as {kind}: {error}") from error


def check(obj: Object, shape: type[msgspec.Struct], kind: str) -> None:
    """Raises BadRequest if a field has the wrong type."""
    read(obj, shape, kind)
