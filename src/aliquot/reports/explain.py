"""Explains one pod of a view, as `kubectl gpu explain` and the read endpoint do."""

from collections.abc import Iterator, Sequence

from aliquot.control.waiting.schedule import reason_on
from aliquot.errors import BadInput
from aliquot.kube.resources import Event
from aliquot.model import Pod
from aliquot.reports.causes import Cause, Outlook, Verdict
from aliquot.reports.explained import Explained, MayRead, explain_pod, explained
from aliquot.reports.scheduler_words import refusal_of_scheduler
from aliquot.reports.view import ClusterView
from aliquot.reports.why_waiting import surroundings

_EXCEEDED = "exceeded quota"


def explain_report(view: ClusterView, namespace: str, name: str, may_read: MayRead, *, node: str = "") -> Explained:
    """Raises BadInput if there is no such pod or node, and nothing that failed to create one."""
    if node and node not in view.nodes:
        raise BadInput(f"there is no node {node}")
    pod = _find(view, namespace, name)
    if pod is None:
        return _not_created(view, namespace, name)
    if pod.waits and not _shows_all(view):
        return _from_condition(pod)
    return explain_pod(view.cluster, view.in_full(pod), surroundings(view), may_read, node=node)


def _find(view: ClusterView, namespace: str, name: str) -> Pod | None:
    key = f"{namespace}/{name}"
    return next((pod for pod in view.pods.values() if pod.key == key), None)


# -- with fewer rights


def _shows_all(view: ClusterView) -> bool:
    """Whether the reader sees what is free: that takes the nodes, and the pods of all namespaces."""
    return bool(view.nodes) and not view.only_namespace


def _from_condition(pod: Pod) -> Explained:
    """What the leader wrote on the pod, for a reader who does not see what others hold."""
    says = refusal_of_scheduler(pod)
    condition = reason_on(pod)
    if condition is None or condition.reason is None:
        return explained(pod.key, _UNKNOWN, scheduler_says=says, notes=(_NOTHING_WRITTEN,))
    outlook = next(
        (each for each in Outlook if (condition.message or "").startswith(f"{each.value}: ")), Outlook.NOT_NOW
    )
    return Explained(
        pod=pod.key,
        cause=condition.reason,
        outlook=outlook.key,
        message=condition.message or "",
        scheduler_says=says,
        notes=(_AS_WRITTEN,),
    )


_UNKNOWN = Verdict(Cause.UNKNOWN, Outlook.NOT_NOW, "you see too little to tell why")
_NOTHING_WRITTEN = "You may not read nodes and all pods, and Aliquot's server has written nothing on the pod yet."
_AS_WRITTEN = "You may not read nodes and all pods, so this is what Aliquot's server wrote on the pod."


# -- pods that were never created


def _not_created(view: ClusterView, namespace: str, name: str) -> Explained:
    for event in _failures(view.events, namespace, name):
        maker = f"{event.involved_object.kind} {event.involved_object.name}"
        sentence = f"a ResourceQuota refuses the pods of {maker}: {event.message}"
        return explained(f"{namespace}/{name}", Verdict(Cause.RESOURCE_QUOTA, Outlook.NOT_NOW, sentence))
    raise BadInput(f"there is no pod {name} in namespace {namespace}")


def _failures(events: Sequence[Event], namespace: str, name: str) -> Iterator[Event]:
    """What a controller of this name, or one that such a controller made, said of a quota, the newest first."""
    for event in sorted(events, key=lambda event: event.last_seen, reverse=True):
        about = event.involved_object
        is_meant = about.name == name or about.name.startswith(f"{name}-") or name.startswith(f"{about.name}-")
        if event.metadata.namespace == namespace and is_meant and _EXCEEDED in (event.message or ""):
            yield event
