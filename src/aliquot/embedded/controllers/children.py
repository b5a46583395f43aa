"""Helpers for the objects that controllers own."""

from aliquot.apiserver.objects import Object, dig, text_at
from aliquot.embedded.api.ownership import controller_uid
from aliquot.embedded.api.owning_store import OwningStore
from aliquot.embedded.api.resources import WritableResource

_ENDED = ("Succeeded", "Failed")


def owned(store: OwningStore, owner: Object, resource: WritableResource) -> list[Object]:
    """The objects that the owner controls, oldest first."""
    uid = text_at(owner, "metadata", "uid")
    held = (stored.obj for collection, stored in store.dependents(uid) if collection == resource.collection)
    return [obj for obj in held if controller_uid(obj) == uid]


def owner_reference(owner: Object) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def new_pod(owner: Object, **metadata: object) -> Object:
    """A pod from the owner's template."""
    template = owner["spec"]["template"]
    inner = {name: value for name, value in (template.get("metadata") or {}).items() if name in _COPIED}
    named = {
        **inner,
        "generateName": f"{owner['metadata']['name']}-",
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [owner_reference(owner)],
        **metadata,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": template["spec"]}


_COPIED = ("labels", "annotations", "finalizers")


def is_leaving(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def has_ended(pod: Object) -> bool:
    return dig(pod, "status", "phase") in _ENDED


def is_active(pod: Object) -> bool:
    return not is_leaving(pod) and not has_ended(pod)


def is_ready(pod: Object) -> bool:
    conditions = dig(pod, "status", "conditions") or []
    return is_active(pod) and any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def least_useful_first(pods: list[Object]) -> list[Object]:
    """Pods in the order of removal: without a node first, then not ready, then the youngest."""

    def use(pod: Object) -> tuple[bool, bool]:
        return bool(text_at(pod, "spec", "nodeName")), is_ready(pod)

    youngest_first = pods[::-1]
    return sorted(youngest_first, key=use)
