"""What kube-scheduler says about a pod, for the reasons that only kube-scheduler knows."""

import re
from collections.abc import Collection

from aliquot.model import Pod
from aliquot.model.admission import PLACEABLE

_VOLUMES = re.compile(r"persistentvolumeclaim|PersistentVolume|volume node affinity|max volume count", re.IGNORECASE)
_JUDGED = re.compile(
    r"Insufficient |Too many pods|node\(s\) (had untolerated taint|didn't match Pod's node (affinity|selector)"
    r"|were unschedulable|were not ready)"
)
"""What we judge ourselves: kube-scheduler may have said it of an earlier state."""
_COUNT = re.compile(r"^\d+ ")


def refusal_of_scheduler(pod: Pod) -> str:
    """The message of the scheduler that has tried the pod; "" if none has."""
    refused = (c for c in pod.status.conditions or () if c.type == "PodScheduled" and c.status == "False")
    return next((condition.message or "" for condition in refused), "")


def untried(pod: Pod) -> str:
    """That the pod's scheduler has not looked at it, as far as the pod tells; "" if it has, or if Aliquot's leader has
    judged the pod, which it does for schedulers that it serves."""
    if any(each.type in ("PodScheduled", PLACEABLE) for each in pod.status.conditions or ()):
        return ""
    name = pod.spec.scheduler_name or "default-scheduler"
    return f"scheduler {name} has not tried the pod; is it running, and does it know Aliquot?"


def about_volumes(message: str) -> str:
    """What a message says about the pod's volumes; "" if nothing."""
    return next((piece for piece in _pieces(message) if _VOLUMES.search(piece)), "")


def about_other_plugins(message: str, ours: Collection[str]) -> str:
    """What a message says besides what we judge ourselves, such as affinity to other pods; "" if nothing. `ours` are
    our own words, with which an extender's refusal begins."""
    return next(
        (
            piece
            for piece in _pieces(message)
            if not _JUDGED.match(piece) and not any(piece.startswith(words) for words in ours)
        ),
        "",
    )


def _pieces(message: str) -> list[str]:
    """The reasons in a message, each without its count of nodes: the count changes while the reason stays. What follows
    about preemption is no reason."""
    _, found, reasons = message.partition(" nodes are available: ")
    first = (reasons if found else message).partition(". ")[0].rstrip(".")
    return [_COUNT.sub("", piece) for piece in re.split(r", (?=\d+ )", first) if piece]
