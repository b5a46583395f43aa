"""PriorityClasses: from a pod's class to its priority."""

from aliquot.apiserver.objects import Object, dig, text_at
from aliquot.apiserver.statuses import Forbidden
from aliquot.apiserver.store import Store
from aliquot.embedded.api.resources import PODS, PRIORITY_CLASSES

SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The classes of every cluster."""


def prioritized(store: Store, pod: Object) -> Object:
    """A new pod with the priority of its class, or of the default class. Raises Forbidden for an unknown class."""
    name = text_at(pod, "spec", "priorityClassName")
    if name:
        held = store.get(PRIORITY_CLASSES.collection, ("", name))
        if held is None:
            why = f"no PriorityClass with name {name} was found"
            raise Forbidden("", PODS.plural, text_at(pod, "metadata", "name"), why)
        return _with_class(pod, held.obj)
    everybodys = [held.obj for held in store.snapshot(PRIORITY_CLASSES.collection) if held.obj.get("globalDefault")]
    if not everybodys or dig(pod, "spec", "priority") is not None:
        return pod
    return _with_class(pod, min(everybodys, key=lambda found: found["value"]))


def _with_class(pod: Object, found: Object) -> Object:
    given = {
        "priorityClassName": found["metadata"]["name"],
        "priority": found["value"],
        "preemptionPolicy": found["preemptionPolicy"],
    }
    return {**pod, "spec": {**pod.get("spec", {}), **given}}
