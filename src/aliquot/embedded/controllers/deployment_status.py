"""The status of a Deployment, as `kubectl rollout status` reads it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from aliquot.apiserver.objects import Object, dig, moment_of, text_at, timestamp, with_condition


@dataclass(frozen=True, slots=True)
class PodCounts:
    """The number of pods, of all templates and of the newest."""

    all: int = 0
    ready: int = 0
    newest: int = 0

    def plus(self, count: int, ready: int, is_newest: bool) -> "PodCounts":
        return PodCounts(self.all + count, self.ready + ready, self.newest + (count if is_newest else 0))


def with_status(deployment: Object, pods: PodCounts, *, newest: str, at: datetime) -> Object:
    before = deployment.get("status", {})
    wanted = deployment["spec"]["replicas"]
    counts = {
        "replicas": pods.all,
        "updatedReplicas": pods.newest,
        "readyReplicas": pods.ready,
        "availableReplicas": pods.ready,
        "unavailableReplicas": max(0, max(wanted, pods.all) - pods.ready),
    }
    moved = any(before.get(name, 0) != count for name, count in counts.items())
    status: Object = {name: count for name, count in counts.items() if count}
    status["observedGeneration"] = deployment["metadata"]["generation"]
    conditions = before.get("conditions")
    for condition in (_available(deployment, pods), _progressing(deployment, pods, newest, at, moved)):
        conditions = with_condition(conditions, _timed(condition, conditions, at, moved))
    return {**deployment, "status": {**status, "conditions": conditions}}


def _available(deployment: Object, pods: PodCounts) -> Object:
    enough = pods.ready >= deployment["spec"]["replicas"]
    return {
        "type": "Available",
        "status": "True" if enough else "False",
        "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
    }


def _progressing(deployment: Object, pods: PodCounts, newest: str, at: datetime, moved: bool) -> Object:
    wanted = deployment["spec"]["replicas"]
    condition: Object = {"type": "Progressing", "status": "True"}
    if pods == PodCounts(wanted, wanted, wanted):
        done = f'ReplicaSet "{newest}" has successfully progressed.'
        return {**condition, "reason": "NewReplicaSetAvailable", "message": done}
    if dig(deployment, "spec", "paused"):
        return {**condition, "status": "Unknown", "reason": "DeploymentPaused", "message": "Deployment is paused"}
    if not moved and _out_of_time(deployment, at):
        stuck = f'ReplicaSet "{newest}" has timed out progressing.'
        return {**condition, "status": "False", "reason": "ProgressDeadlineExceeded", "message": stuck}
    return {**condition, "reason": "ReplicaSetUpdated", "message": f'ReplicaSet "{newest}" is progressing.'}


def _out_of_time(deployment: Object, at: datetime) -> bool:
    last = next((c for c in dig(deployment, "status", "conditions") or [] if c.get("type") == "Progressing"), None)
    moment = moment_of(text_at(last, "lastUpdateTime"))
    patience = timedelta(seconds=deployment["spec"]["progressDeadlineSeconds"])
    same = dig(deployment, "status", "observedGeneration") == deployment["metadata"]["generation"]
    return same and moment is not None and at - moment > patience


def _timed(condition: Object, earlier: list[Object] | None, at: datetime, moved: bool) -> Object:
    present = next((c for c in earlier or [] if c.get("type") == condition["type"]), {})
    now = timestamp(at)
    turned = present.get("status") != condition["status"]
    fresh = moved or turned or present.get("reason") != condition["reason"]
    return {
        **condition,
        "lastUpdateTime": now if fresh else present["lastUpdateTime"],
        "lastTransitionTime": now if turned else present["lastTransitionTime"],
    }
