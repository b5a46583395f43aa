"""What a node lacks for a pod besides GPUs: CPU, memory, pod capacity, unknown resources."""

from collections.abc import Collection, Iterable

from aliquot.errors import BadQuantity
from aliquot.model import Node, Pod
from aliquot.model.quantity import milli, whole

_PODS = "pods"


def why_short(node: Node, pod: Pod, others: Iterable[Pod], *, but: Collection[str] = ()) -> str:
    """Why a node is too small, in kube-scheduler's words; empty if it has enough next to the bound `others`. Ignores
    resources in `but`, which are counted elsewhere."""
    offered = node.status.allocatable or {}
    living = [other for other in others if not other.ended and other.metadata.uid != pod.metadata.uid]
    if _PODS in offered and len(living) >= whole(str(offered[_PODS])):
        return "Too many pods"
    asked = {name for container, _ in pod.containers() for name in container.requests if name not in but}
    short = [
        name
        for name in sorted(asked)
        if (wanted := _requests(pod, name)) > 0
        and wanted > milli(str(offered.get(name, 0))) - sum(_requests(other, name) for other in living)
    ]
    return ", ".join(f"Insufficient {name}" for name in short)


def _requests(pod: Pod, resource: str) -> int:
    try:
        return pod.requests(resource)
    except BadQuantity:
        return 0
