"""StatefulSets: pods with ordinals, one after another. Without volume claims and old revisions."""

from hashlib import sha256

import msgspec

from aliquot.apiserver.objects import Object, dig, key_of, text_at
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.resources import PODS, STATEFUL_SETS
from aliquot.embedded.controllers.children import has_ended, is_active, is_leaving, is_ready, new_pod, owned
from aliquot.embedded.controllers.pod_making import PodMaker

_REVISION = "controller-revision-hash"
_POD_NAME = "statefulset.kubernetes.io/pod-name"
_POD_INDEX = "apps.kubernetes.io/pod-index"


class StatefulSetController:
    """Recreates ended pods under their names. Unless `podManagementPolicy` is Parallel, a pod starts when those with
    lower ordinals are ready, and stops after those with higher ordinals."""

    collection = STATEFUL_SETS.collection

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._maker = PodMaker(registry, "statefulset-controller")

    def sync(self, stateful_set: Object) -> None:
        if is_leaving(stateful_set):
            return
        pods = {text_at(pod, "metadata", "name"): pod for pod in owned(self._registry.store, stateful_set, PODS)}
        self._work(stateful_set, pods)
        now = owned(self._registry.store, stateful_set, PODS)
        self._registry.rewrite(STATEFUL_SETS, *key_of(stateful_set), lambda obj: _with_status(obj, now))

    def _work(self, stateful_set: Object, pods: dict[str, Object]) -> None:
        one_by_one = dig(stateful_set, "spec", "podManagementPolicy") != "Parallel"
        wanted = [_name(stateful_set, number) for number in range(stateful_set["spec"]["replicas"])]
        for number, name in enumerate(wanted):
            pod = pods.get(name)
            if pod is None:
                self._maker.make(stateful_set, _new_pod(stateful_set, number))
            elif has_ended(pod) and not is_leaving(pod):
                self._delete(pod)
            if one_by_one and (pod is None or not is_ready(pod)):
                return
        surplus = sorted((pod for name, pod in pods.items() if name not in wanted), key=_number, reverse=True)
        for pod in surplus:
            if not is_leaving(pod):
                self._delete(pod)
            if one_by_one:
                return
        self._replace_one(stateful_set, [pods[name] for name in wanted if name in pods])

    def _replace_one(self, stateful_set: Object, pods: list[Object]) -> None:
        """Replace the last pod of an older template, if all others are ready."""
        strategy = dig(stateful_set, "spec", "updateStrategy") or {}
        first = dig(strategy, "rollingUpdate", "partition") or 0
        if strategy.get("type") == "OnDelete" or not all(map(is_ready, pods)):
            return
        old = [pod for pod in pods if _number(pod) >= first and _revision_of(pod) != _revision(stateful_set)]
        if old:
            self._delete(old[-1])

    def _delete(self, pod: Object) -> None:
        self._registry.delete(PODS, *key_of(pod), DeleteRequest())


def _name(stateful_set: Object, number: int) -> str:
    return f"{stateful_set['metadata']['name']}-{number}"


def _number(pod: Object) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])


def _new_pod(stateful_set: Object, number: int) -> Object:
    name = _name(stateful_set, number)
    labels = dig(stateful_set, "spec", "template", "metadata", "labels") or {}
    own = {_REVISION: _revision(stateful_set), _POD_NAME: name, _POD_INDEX: str(number)}
    pod = new_pod(
        stateful_set, name=name, generateName=f"{stateful_set['metadata']['name']}-", labels={**labels, **own}
    )
    service = text_at(stateful_set, "spec", "serviceName")
    return {**pod, "spec": {**pod["spec"], "hostname": name, **({"subdomain": service} if service else {})}}


def _revision(stateful_set: Object) -> str:
    template = msgspec.json.encode(stateful_set["spec"]["template"], order="sorted")
    return f"{stateful_set['metadata']['name']}-{sha256(template).hexdigest()[:10]}"


def _revision_of(pod: Object) -> str:
    return text_at(pod, "metadata", "labels", _REVISION)


def _with_status(stateful_set: Object, pods: list[Object]) -> Object:
    revision, active = _revision(stateful_set), [pod for pod in pods if is_active(pod)]
    ready = sum(map(is_ready, active))
    updated = sum(_revision_of(pod) == revision for pod in active)
    before = text_at(stateful_set, "status", "currentRevision") or revision
    status = {
        "observedGeneration": stateful_set["metadata"]["generation"],
        "replicas": len(active),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "updatedReplicas": updated,
        "currentReplicas": updated if before == revision else len(active) - updated,
        "currentRevision": revision if updated == len(active) else before,
        "updateRevision": revision,
    }
    return {**stateful_set, "status": status}
