"""Deployments: one ReplicaSet per version of the template, and rollouts between them."""

from hashlib import sha256

import msgspec

from aliquot.apiserver.objects import Object, dig, key_of, text_at, with_metadata
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.embedded.api.registry import Registry
from aliquot.embedded.api.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from aliquot.embedded.controllers.children import is_active, is_leaving, is_ready, owned, owner_reference
from aliquot.embedded.controllers.deployment_status import PodCounts, with_status
from aliquot.embedded.controllers.rollouts import SetSize, bounds_of, next_sizes

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_HASH_LENGTH = 10


class DeploymentController:
    collection = DEPLOYMENTS.collection

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def sync(self, deployment: Object) -> float | None:
        if is_leaving(deployment):
            return None
        sets = owned(self._registry.store, deployment, REPLICA_SETS)
        newest = next((held for held in sets if _bare_template(held) == deployment["spec"]["template"]), None)
        if not dig(deployment, "spec", "paused"):
            newest = self._with_revision(deployment, newest or self._create(deployment), sets)
            older = sorted((held for held in sets if key_of(held) != key_of(newest)), key=_revision)
            self._go_on(deployment, newest, older)
            self._forget_oldest(deployment, older)
        return self._tell(deployment, newest)

    def _create(self, deployment: Object) -> Object:
        spec, metadata = deployment["spec"], deployment["metadata"]
        mark = {HASH: template_hash(spec["template"])}
        template = _labelled(spec["template"], mark)
        selector = spec["selector"]
        body: Object = {
            "apiVersion": REPLICA_SETS.api_version,
            "kind": REPLICA_SETS.kind,
            "metadata": {
                "name": f"{metadata['name']}-{mark[HASH]}",
                "labels": template["metadata"]["labels"],
                "ownerReferences": [owner_reference(deployment)],
            },
            "spec": {
                "replicas": 0,
                "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **mark}},
                "template": template,
            },
        }
        return self._registry.create(REPLICA_SETS, metadata["namespace"], body).obj

    def _with_revision(self, deployment: Object, newest: Object, sets: list[Object]) -> Object:
        """The current revision has the highest number, even after a rollback."""
        others = [_revision(held) for held in sets if key_of(held) != key_of(newest)]
        number = max(_revision(newest), 1 + max(others, default=0))
        text = str(number)
        self._registry.rewrite(DEPLOYMENTS, *key_of(deployment), lambda obj: _annotated(obj, text))
        return self._registry.rewrite(REPLICA_SETS, *key_of(newest), lambda obj: _annotated(obj, text)).obj

    def _go_on(self, deployment: Object, newest: Object, older: list[Object]) -> None:
        if dig(deployment, "spec", "strategy", "type") == "Recreate":
            left = any(owned(self._registry.store, held, PODS) for held in older)
            sizes = (0 if left else deployment["spec"]["replicas"]), [0 for _ in older]
        else:
            sizes = next_sizes(bounds_of(deployment), self._set(newest), [self._set(held) for held in older])
        self._scale(newest, sizes[0])
        for held, size in zip(older, sizes[1], strict=True):
            self._scale(held, size)

    def _set(self, replica_set: Object) -> SetSize:
        ready = sum(is_ready(pod) for pod in owned(self._registry.store, replica_set, PODS))
        return SetSize(replica_set["spec"]["replicas"], min(ready, replica_set["spec"]["replicas"]))

    def _scale(self, replica_set: Object, size: int) -> None:
        self._registry.patch(
            REPLICA_SETS,
            *key_of(replica_set),
            lambda obj: {**obj, "spec": {**obj["spec"], "replicas": size}},
        )

    def _forget_oldest(self, deployment: Object, older: list[Object]) -> None:
        idle = [held for held in older if not held["spec"]["replicas"] and not dig(held, "status", "replicas")]
        limit = dig(deployment, "spec", "revisionHistoryLimit")
        for held in idle[: max(0, len(idle) - limit)]:
            self._registry.delete(REPLICA_SETS, *key_of(held), DeleteRequest())

    def _tell(self, deployment: Object, newest: Object | None) -> float | None:
        pods = PodCounts()
        for held in owned(self._registry.store, deployment, REPLICA_SETS):
            active = [pod for pod in owned(self._registry.store, held, PODS) if is_active(pod)]
            is_newest = newest is not None and key_of(held) == key_of(newest)
            pods = pods.plus(len(active), sum(map(is_ready, active)), is_newest)
        now = self._registry.clock()
        name = text_at(newest, "metadata", "name")
        told = self._registry.rewrite(
            DEPLOYMENTS, *key_of(deployment), lambda obj: with_status(obj, pods, newest=name, at=now)
        )
        return seconds_of_patience(told.obj)


def seconds_of_patience(deployment: Object) -> float | None:
    """Seconds until the rollout counts as stuck; None if it is over."""
    reasons = {condition["reason"] for condition in deployment["status"]["conditions"]}
    if "ReplicaSetUpdated" not in reasons:
        return None
    seconds: int = deployment["spec"]["progressDeadlineSeconds"]
    return seconds + 1.0


def template_hash(template: Object) -> str:
    number = int.from_bytes(sha256(msgspec.json.encode(template, order="sorted")).digest())
    letters = []
    for _ in range(_HASH_LENGTH):
        number, letter = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return "".join(letters)


def _bare_template(replica_set: Object) -> Object:
    template: Object = replica_set["spec"]["template"]
    labels = {name: value for name, value in template["metadata"]["labels"].items() if name != HASH}
    return {**template, "metadata": {**template["metadata"], "labels": labels}}


def _labelled(template: Object, labels: dict[str, str]) -> Object:
    metadata = template.get("metadata") or {}
    return {**template, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}}


def _revision(replica_set: Object) -> int:
    text = text_at(replica_set, "metadata", "annotations", REVISION)
    return int(text) if text.isdigit() else 0


def _annotated(obj: Object, revision: str) -> Object:
    return with_metadata(obj, annotations={**(obj["metadata"].get("annotations") or {}), REVISION: revision})
