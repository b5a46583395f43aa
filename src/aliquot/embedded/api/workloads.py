"""The API rules of workloads: Deployments, ReplicaSets, StatefulSets and Jobs. `controllers` runs them."""

from dataclasses import replace

from aliquot.apiserver.objects import Object, dig, text_at
from aliquot.apiserver.selectors import matches
from aliquot.apiserver.statuses import FieldError, forbidden, invalid, required, unsupported
from aliquot.embedded.api import shapes
from aliquot.embedded.api.pods import STRATEGY as PODS
from aliquot.embedded.api.strategy import Strategy

JOB_UID, JOB_NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"

_OLD_JOB_UID, _OLD_JOB_NAME = "controller-uid", "job-name"
_DEPLOYMENT_DEFAULTS: Object = {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
_STATEFUL_SET_DEFAULTS: Object = {"replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady"}
_MANAGEMENT = ("OrderedReady", "Parallel")
_UPDATES = ("RollingUpdate", "OnDelete")
_ROLLING: Object = {"maxUnavailable": "25%", "maxSurge": "25%"}
_STRATEGIES = ("Recreate", "RollingUpdate")
_IMMUTABLE = "field is immutable"
_BACKOFF_LIMIT = 6


def _with_template(obj: Object, defaults: Object) -> Object:
    """The object with the defaults of its spec and its pod template."""
    spec = {**defaults, **obj.get("spec", {})}
    if "template" in spec:
        spec["template"] = PODS.defaults(spec["template"])
    return {**obj, "spec": spec}


def _deployment_defaults(deployment: Object) -> Object:
    filled = _with_template(deployment, _DEPLOYMENT_DEFAULTS)
    strategy = {"type": "RollingUpdate", **filled["spec"].get("strategy", {})}
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {**_ROLLING, **strategy.get("rollingUpdate", {})}
    return {**filled, "spec": {**filled["spec"], "strategy": strategy}}


def _replica_set_defaults(replica_set: Object) -> Object:
    return _with_template(replica_set, {"replicas": 1})


def _stateful_set_defaults(stateful_set: Object) -> Object:
    filled = _with_template(stateful_set, _STATEFUL_SET_DEFAULTS)
    strategy = {"type": "RollingUpdate", **filled["spec"].get("updateStrategy", {})}
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {"partition": 0, **strategy.get("rollingUpdate", {})}
    return {**filled, "spec": {**filled["spec"], "updateStrategy": strategy}}


def _job_defaults(job: Object) -> Object:
    filled = _with_template(job, {"backoffLimit": _BACKOFF_LIMIT, "completionMode": "NonIndexed", "suspend": False})
    spec = filled["spec"]
    if "parallelism" not in spec and "completions" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    return filled


def _new_job(job: Object) -> Object:
    """A new Job. Its selector and its pods' labels have the Job's UID."""
    spec, metadata = job["spec"], job["metadata"]
    if spec.get("manualSelector"):
        return {**job, "status": {}}
    uid, name = metadata["uid"], metadata["name"]
    labels = {JOB_UID: uid, JOB_NAME: name, _OLD_JOB_UID: uid, _OLD_JOB_NAME: name}
    template = spec["template"]
    inner = template.get("metadata") or {}
    labelled = {**template, "metadata": {**inner, "labels": {**(inner.get("labels") or {}), **labels}}}
    selector = {"matchLabels": {JOB_UID: uid}}
    return {**job, "spec": {**spec, "selector": selector, "template": labelled}, "status": {}}


def _template_errors(obj: Object) -> list[FieldError]:
    template = dig(obj, "spec", "template")
    if template is None:
        return [required("spec.template")]
    return [replace(error, field=f"spec.template.{error.field}") for error in PODS.errors(template)]


def _replicas_errors(obj: Object) -> list[FieldError]:
    count = dig(obj, "spec", "replicas")
    return [invalid("spec.replicas", count, "must be greater than or equal to 0")] if count < 0 else []


def _selector_errors(obj: Object) -> list[FieldError]:
    selector = dig(obj, "spec", "selector")
    if not selector:
        return [required("spec.selector")]
    labels = dig(obj, "spec", "template", "metadata", "labels") or {}
    if matches(selector, labels):
        return []
    return [invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")]


def _kept_running_errors(obj: Object) -> list[FieldError]:
    found = [*_selector_errors(obj), *_replicas_errors(obj), *_template_errors(obj)]
    policy = text_at(obj, "spec", "template", "spec", "restartPolicy")
    if policy in ("OnFailure", "Never"):
        found.append(unsupported("spec.template.spec.restartPolicy", policy, ("Always",)))
    return found


def _deployment_errors(deployment: Object) -> list[FieldError]:
    kind = dig(deployment, "spec", "strategy", "type")
    found = _kept_running_errors(deployment)
    return found if kind in _STRATEGIES else [*found, unsupported("spec.strategy.type", str(kind), _STRATEGIES)]


def _stateful_set_errors(stateful_set: Object) -> list[FieldError]:
    management, update = (
        dig(stateful_set, "spec", "podManagementPolicy"),
        dig(stateful_set, "spec", "updateStrategy", "type"),
    )
    found = _kept_running_errors(stateful_set)
    if management not in _MANAGEMENT:
        found.append(unsupported("spec.podManagementPolicy", str(management), _MANAGEMENT))
    if update not in _UPDATES:
        found.append(unsupported("spec.updateStrategy.type", str(update), _UPDATES))
    return found


def _job_errors(job: Object) -> list[FieldError]:
    spec = job["spec"]
    counts = ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
    found = [
        invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")
        for name in counts
        if spec.get(name, 0) < 0
    ]
    if spec["completionMode"] == "Indexed":
        found.append(forbidden("spec.completionMode", "the embedded cluster does not support indexed Jobs"))
    if text_at(spec, "template", "spec", "restartPolicy") == "Always":
        found.append(required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    return [*found, *_template_errors(job)]


def _selector_changes(old: Object, new: Object) -> list[FieldError]:
    return _changes(old, new, "selector")


def _stateful_set_changes(old: Object, new: Object) -> list[FieldError]:
    return _changes(old, new, "selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates")


def _job_changes(old: Object, new: Object) -> list[FieldError]:
    return _changes(old, new, "selector", "template", "completions", "completionMode")


def _changes(old: Object, new: Object, *fields: str) -> list[FieldError]:
    changed = [field for field in fields if dig(old, "spec", field) != dig(new, "spec", field)]
    return [invalid(f"spec.{field}", dig(new, "spec", field), _IMMUTABLE) for field in changed]


def _without_status(obj: Object) -> Object:
    return {**obj, "status": {}}


DEPLOYMENT = Strategy(
    shape=shapes.Workload,
    on_create=_without_status,
    defaults=_deployment_defaults,
    errors=_deployment_errors,
    update_errors=_selector_changes,
    counts_generations=True,
)
REPLICA_SET = Strategy(
    shape=shapes.Workload,
    on_create=_without_status,
    defaults=_replica_set_defaults,
    errors=_kept_running_errors,
    update_errors=_selector_changes,
    counts_generations=True,
)
STATEFUL_SET = Strategy(
    shape=shapes.Workload,
    on_create=_without_status,
    defaults=_stateful_set_defaults,
    errors=_stateful_set_errors,
    update_errors=_stateful_set_changes,
    counts_generations=True,
)
JOB = Strategy(
    shape=shapes.Job,
    on_create=_new_job,
    defaults=_job_defaults,
    errors=_job_errors,
    update_errors=_job_changes,
    counts_generations=True,
)
