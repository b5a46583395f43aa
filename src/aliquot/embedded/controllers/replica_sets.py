"""ReplicaSets: keep the wanted number of pods. Orphaned pods are not adopted."""

from aliquot.apiserver.objects import Object, dig, key_of, timestamp, with_condition
from aliquot.apiserver.selectors import matches
from aliquot.apiserver.statuses import StatusError
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.resources import PODS, REPLICA_SETS
from aliquot.embedded.controllers.children import is_active, is_leaving, is_ready, least_useful_first, new_pod, owned
from aliquot.embedded.controllers.pod_making import FAILED_CREATE, PodMaker

_FAILURE = "ReplicaFailure"


class ReplicaSetController:
    """Replaces failed pods, and keeps them for inspection."""

    collection = REPLICA_SETS.collection

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._maker = PodMaker(registry, "replicaset-controller")

    def sync(self, replica_set: Object) -> None:
        if is_leaving(replica_set):
            return
        active = [pod for pod in owned(self._registry.store, replica_set, PODS) if is_active(pod)]
        missing = replica_set["spec"]["replicas"] - len(active)
        for pod in least_useful_first(active)[: max(0, -missing)]:
            self._registry.delete(PODS, *key_of(pod), DeleteRequest())
            active.remove(pod)
        try:
            for _ in range(missing):
                made = self._maker.make(replica_set, new_pod(replica_set))
                active.append(made)
        except StatusError as error:
            self._tell(replica_set, active, error.message)
            raise
        self._tell(replica_set, active, "")

    def _tell(self, replica_set: Object, active: list[Object], failure: str) -> None:
        at = timestamp(self._registry.clock())
        self._registry.rewrite(
            REPLICA_SETS, *key_of(replica_set), lambda obj: _with_failure(_with_status(obj, active), failure, at)
        )


def _with_failure(replica_set: Object, message: str, at: str) -> Object:
    """A lasting failure keeps its first message, so that it does not change the object again."""
    conditions = dig(replica_set, "status", "conditions") or []
    failing = any(condition["type"] == _FAILURE for condition in conditions)
    if failing == bool(message):
        return replica_set
    if message:
        told = {"status": "True", "lastTransitionTime": at, "reason": FAILED_CREATE, "message": message}
        kept = with_condition(conditions, {"type": _FAILURE, **told})
    else:
        kept = [condition for condition in conditions if condition["type"] != _FAILURE]
    status = {name: value for name, value in replica_set["status"].items() if name != "conditions"}
    return {**replica_set, "status": {**status, **({"conditions": kept} if kept else {})}}


def _with_status(replica_set: Object, active: list[Object]) -> Object:
    ready = sum(is_ready(pod) for pod in active)
    labels = dig(replica_set, "spec", "template", "metadata", "labels") or {}
    labelled = sum(matches({"matchLabels": labels}, pod["metadata"].get("labels") or {}) for pod in active)
    counts = {"fullyLabeledReplicas": labelled, "readyReplicas": ready, "availableReplicas": ready}
    status = {
        **replica_set.get("status", {}),
        "replicas": len(active),
        "observedGeneration": replica_set["metadata"]["generation"],
        **counts,
    }
    return {**replica_set, "status": {name: value for name, value in status.items() if value or name not in counts}}
