"""ReplicaSet: as many pods of one template as it says. Pods that nobody owns are not adopted."""

from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.embedded.api.objects import Object, dig, key_of
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.resources import PODS, REPLICA_SETS
from aliquot.embedded.api.selectors import matches
from aliquot.embedded.controllers.children import is_active, is_leaving, is_ready, least_useful_first, new_pod, owned


class ReplicaSetController:
    """A pod that has failed is replaced, and stays for people to look at."""

    collection = REPLICA_SETS.collection

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def sync(self, replica_set: Object) -> None:
        if is_leaving(replica_set):
            return
        active = [pod for pod in owned(self._registry.store, replica_set, PODS) if is_active(pod)]
        missing = replica_set["spec"]["replicas"] - len(active)
        for _ in range(missing):
            created = self._registry.create(PODS, replica_set["metadata"]["namespace"], new_pod(replica_set))
            active.append(created.obj)
        for pod in least_useful_first(active)[: max(0, -missing)]:
            self._registry.delete(PODS, *key_of(pod), DeleteRequest())
            active.remove(pod)
        self._registry.rewrite(REPLICA_SETS, *key_of(replica_set), lambda obj: _with_status(obj, active))


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
