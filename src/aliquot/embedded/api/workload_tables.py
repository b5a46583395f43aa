"""The rows of Deployments, ReplicaSets, StatefulSets and Jobs."""

from datetime import datetime

from aliquot.apiserver.ages import human
from aliquot.apiserver.objects import Object, dig, moment_of, text_at
from aliquot.apiserver.tables import AGE, NAME, Cells, Column, TableFormat, age_of, name_of

_PODS_OF = (
    Column("Containers", "The names of the pods' containers.", wide=True),
    Column("Images", "The images of the pods' containers.", wide=True),
    Column("Selector", "Which pods are counted.", wide=True),
)


def selector_text(selector: Object) -> str:
    """A LabelSelector as one line."""
    equal = [f"{name}={value}" for name, value in sorted((selector.get("matchLabels") or {}).items())]
    return ",".join([*equal, *(_expression(part) for part in selector.get("matchExpressions") or [])]) or "<none>"


def _expression(part: Object) -> str:
    name, values = part["key"], ",".join(part.get("values") or [])
    words = {"In": f"{name} in ({values})", "NotIn": f"{name} notin ({values})", "DoesNotExist": f"!{name}"}
    return words.get(part["operator"], str(name))


def _pods_of(obj: Object) -> Cells:
    containers = dig(obj, "spec", "template", "spec", "containers") or []
    return [
        ",".join(container.get("name", "") for container in containers),
        ",".join(container.get("image", "") for container in containers),
        selector_text(dig(obj, "spec", "selector") or {}),
    ]


def _count(obj: Object, part: str, field: str) -> int:
    return dig(obj, part, field) or 0


def _deployment_cells(obj: Object, at: datetime) -> Cells:
    return [
        name_of(obj),
        f"{_count(obj, 'status', 'readyReplicas')}/{_count(obj, 'spec', 'replicas')}",
        _count(obj, "status", "updatedReplicas"),
        _count(obj, "status", "availableReplicas"),
        age_of(obj, at),
        *_pods_of(obj),
    ]


def _replica_set_cells(obj: Object, at: datetime) -> Cells:
    return [
        name_of(obj),
        _count(obj, "spec", "replicas"),
        _count(obj, "status", "replicas"),
        _count(obj, "status", "readyReplicas"),
        age_of(obj, at),
        *_pods_of(obj),
    ]


def _stateful_set_cells(obj: Object, at: datetime) -> Cells:
    ready = f"{_count(obj, 'status', 'readyReplicas')}/{_count(obj, 'spec', 'replicas')}"
    return [name_of(obj), ready, age_of(obj, at), *_pods_of(obj)[:2]]


def _job_status(job: Object) -> str:
    conditions = {c.get("type") for c in dig(job, "status", "conditions") or [] if c.get("status") == "True"}
    if dig(job, "metadata", "deletionTimestamp"):
        return "Terminating"
    return next((word for word in ("Complete", "Failed", "Suspended") if word in conditions), "Running")


def _job_completions(job: Object) -> str:
    done, wanted = _count(job, "status", "succeeded"), dig(job, "spec", "completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallelism = dig(job, "spec", "parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(job: Object, at: datetime) -> str:
    start = moment_of(text_at(job, "status", "startTime"))
    end = moment_of(text_at(job, "status", "completionTime")) or at
    return "" if start is None else human((end - start).total_seconds())


def _job_cells(job: Object, at: datetime) -> Cells:
    own = [name_of(job), _job_status(job), _job_completions(job), _job_duration(job, at), age_of(job, at)]
    return [*own, *_pods_of(job)]


DEPLOYMENTS = TableFormat(
    (
        NAME,
        Column("Ready", "How many of the wanted pods are ready."),
        Column("Up-to-date", "How many pods have the newest template."),
        Column("Available", "How many pods are available."),
        AGE,
        *_PODS_OF,
    ),
    _deployment_cells,
)
REPLICA_SETS = TableFormat(
    (
        NAME,
        Column("Desired", "How many pods are wanted.", type="integer"),
        Column("Current", "How many pods there are.", type="integer"),
        Column("Ready", "How many pods are ready.", type="integer"),
        AGE,
        *_PODS_OF,
    ),
    _replica_set_cells,
)
STATEFUL_SETS = TableFormat(
    (NAME, Column("Ready", "How many of the wanted pods are ready."), AGE, *_PODS_OF[:2]),
    _stateful_set_cells,
)
JOBS = TableFormat(
    (
        NAME,
        Column("Status", "Running, Complete, Failed or Suspended."),
        Column("Completions", "How many pods have succeeded, of how many."),
        Column("Duration", "How long it took, or has taken so far."),
        AGE,
        *_PODS_OF,
    ),
    _job_cells,
)
