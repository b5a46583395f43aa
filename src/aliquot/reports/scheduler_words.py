"""What kube-scheduler says about a pod, for the reasons that only kube-scheduler knows."""

import re

from aliquot.model import Pod

_VOLUMES = re.compile(r"persistentvolumeclaim|PersistentVolume|volume node affinity|max volume count", re.IGNORECASE)
_PLUGINS = re.compile(
    r"topology spread constraints|pod affinity rules|pod anti-affinity rules|free ports"
    r"|cannot allocate all claims|resourceclaim|ResourceClaim|pod group"
)
_COUNT = re.compile(r"^(?:0/\d+ nodes are available: )?\d* ?")


def refusal_of_scheduler(pod: Pod) -> str:
    """The message of the scheduler that has tried the pod; "" if none has."""
    refused = (c for c in pod.status.conditions or () if c.type == "PodScheduled" and c.status == "False")
    return next((condition.message or "" for condition in refused), "")


def about_volumes(message: str) -> str:
    """What a message says about the pod's volumes; "" if nothing."""
    return _piece(message, _VOLUMES)


def about_other_plugins(message: str) -> str:
    """What a message says of rules that need more than the node itself, such as affinity to other pods; "" if
    nothing."""
    return _piece(message, _PLUGINS)


def _piece(message: str, pattern: re.Pattern[str]) -> str:
    """The first piece that matches, without its count of nodes: the count changes while the reason stays."""
    pieces = re.split(r", (?=\d+ )|\. ", message)
    found = next((piece for piece in pieces if pattern.search(piece)), "")
    return _COUNT.sub("", found).rstrip(".")
