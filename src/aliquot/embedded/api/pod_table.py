"""The row of a pod. Its STATUS is a summary of many fields; the order of the rules below is the real server's."""

from datetime import datetime

from aliquot.apiserver.ages import age
from aliquot.apiserver.objects import Object, dig, text_at
from aliquot.apiserver.tables import AGE, NAME, Cells, Column, TableFormat, age_of, name_of

_NONE = "<none>"


def status_of(pod: Object) -> str:
    """The word that `kubectl get pods` shows."""
    phase = text_at(pod, "status", "phase")
    if dig(pod, "metadata", "deletionTimestamp"):
        if text_at(pod, "status", "reason") == "NodeLost":
            return "Unknown"
        if phase not in ("Succeeded", "Failed"):
            return "Terminating"
    reason = _unstarted_reason(pod, phase)
    if _blocking_init_container(pod) is not None and not _condition_is_true(pod, "Initialized"):
        return _init_reason(pod)
    return _container_reason(pod, reason)


def _unstarted_reason(pod: Object, phase: str) -> str:
    gated = any(c.get("reason") == "SchedulingGated" for c in dig(pod, "status", "conditions") or [])
    return "SchedulingGated" if gated else text_at(pod, "status", "reason") or phase


def _init_statuses(pod: Object) -> list[Object]:
    return dig(pod, "status", "initContainerStatuses") or []


def _statuses(pod: Object) -> list[Object]:
    return dig(pod, "status", "containerStatuses") or []


def _sidecars(pod: Object) -> set[str]:
    containers = dig(pod, "spec", "initContainers") or []
    return {c["name"] for c in containers if c.get("restartPolicy") == "Always"}


def _blocking_init_container(pod: Object) -> int | None:
    """The position of the first init container that has not finished."""
    sidecars = _sidecars(pod)
    for position, status in enumerate(_init_statuses(pod)):
        ended = dig(status, "state", "terminated")
        succeeded = ended is not None and ended.get("exitCode", 0) == 0
        if not succeeded and not (status["name"] in sidecars and status.get("started")):
            return position
    return None


def _init_reason(pod: Object) -> str:
    position = _blocking_init_container(pod) or 0
    status = _init_statuses(pod)[position]
    if ended := dig(status, "state", "terminated"):
        return f"Init:{_ended_reason(ended)}"
    waiting = text_at(status, "state", "waiting", "reason")
    if waiting and waiting != "PodInitializing":
        return f"Init:{waiting}"
    return f"Init:{position}/{len(dig(pod, 'spec', 'initContainers') or [])}"


def _ended_reason(ended: Object) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _container_reason(pod: Object, reason: str) -> str:
    """The reason of the first container that waits or has ended."""
    failure, running = "", False
    for status in reversed(_statuses(pod)):
        ended = dig(status, "state", "terminated")
        if waiting := text_at(status, "state", "waiting", "reason"):
            reason = waiting
        elif ended is not None:
            reason = _ended_reason(ended)
            failure = reason if ended.get("exitCode", 0) else failure
        elif status.get("ready") and dig(status, "state", "running") is not None:
            running = True
    return _completed_reason(pod, failure, running) if reason == "Completed" else reason


def _completed_reason(pod: Object, failure: str, running: bool) -> str:
    """ "Completed" of one container does not count while another runs or has failed."""
    if running and _condition_is_true(pod, "Ready"):
        return "Running"
    return failure or ("NotReady" if running else "Completed")


def _condition_is_true(pod: Object, kind: str) -> bool:
    conditions = dig(pod, "status", "conditions") or []
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions)


def _counted_statuses(pod: Object) -> list[Object]:
    """The containers whose restarts count: init containers while they run, else sidecars and containers."""
    if _blocking_init_container(pod) is not None and not _condition_is_true(pod, "Initialized"):
        return _init_statuses(pod)
    sidecars = _sidecars(pod)
    return [*(s for s in _init_statuses(pod) if s["name"] in sidecars), *_statuses(pod)]


def _ready(pod: Object) -> str:
    sidecars = _sidecars(pod)
    expected = len(dig(pod, "spec", "containers") or []) + len(sidecars)
    started = [s for s in _init_statuses(pod) if s["name"] in sidecars and s.get("started")]
    running = [s for s in _statuses(pod) if dig(s, "state", "running") is not None]
    return f"{sum(bool(s.get('ready')) for s in (*started, *running))}/{expected}"


def _restarts(pod: Object, at: datetime) -> str:
    counted = _counted_statuses(pod)
    count = sum(status.get("restartCount") or 0 for status in counted)
    last = max((text_at(s, "lastState", "terminated", "finishedAt") for s in counted), default="")
    return f"{count} ({age(last, at)} ago)" if count and last else str(count)


def _readiness_gates(pod: Object) -> str:
    gates = dig(pod, "spec", "readinessGates") or []
    passed = sum(_condition_is_true(pod, gate.get("conditionType", "")) for gate in gates)
    return f"{passed}/{len(gates)}" if gates else _NONE


def _cells(pod: Object, at: datetime) -> Cells:
    addresses = dig(pod, "status", "podIPs") or [{}]
    return [
        name_of(pod),
        _ready(pod),
        status_of(pod),
        _restarts(pod, at),
        age_of(pod, at),
        addresses[0].get("ip") or _NONE,
        text_at(pod, "spec", "nodeName") or _NONE,
        text_at(pod, "status", "nominatedNodeName") or _NONE,
        _readiness_gates(pod),
    ]


_ENDINGS = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


def _conditions(pod: Object) -> list[Object]:
    phase = text_at(pod, "status", "phase")
    if phase not in _ENDINGS:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": _ENDINGS[phase]}]


PODS = TableFormat(
    columns=(
        NAME,
        Column("Ready", "How many of the pod's containers are ready."),
        Column("Status", "What the pod's containers are doing, in one word."),
        Column("Restarts", "How often its containers have restarted, and when last."),
        AGE,
        Column("IP", "The pod's address.", wide=True),
        Column("Node", "The node that the pod is on.", wide=True),
        Column("Nominated Node", "The node on which others are evicted for this pod.", wide=True),
        Column("Readiness Gates", "How many of its additional conditions are true.", wide=True),
    ),
    cells=_cells,
    conditions=_conditions,
)
