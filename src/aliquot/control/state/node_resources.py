"""What a node lacks for a pod besides GPUs: CPU, memory, pod capacity, unknown resources."""

from collections.abc import Callable, Collection, Iterable, Mapping

from aliquot.control.state.totals import Totals
from aliquot.errors import BadQuantity
from aliquot.model import Host, Node, Pod
from aliquot.model.quantity import milli, whole

PODS = "pods"
"""The name of the number of pods among a node's resources."""
_OF_HOST: Mapping[str, Callable[[Host], int]] = {"cpu": lambda host: host.cpu, "memory": lambda host: host.memory}


def why_short(node: Node, pod: Pod, totals: Totals, others: Iterable[Pod], *, but: Collection[str] = ()) -> str:
    """Why a node is too small, in kube-scheduler's words; empty if it has enough."""
    short = short_of(node, pod, totals, others, but=but)
    return ", ".join("Too many pods" if name == PODS else f"Insufficient {name}" for name in short)


def short_of(node: Node, pod: Pod, totals: Totals, others: Iterable[Pod], *, but: Collection[str] = ()) -> list[str]:
    """The resources of which a node has too little left. Ignores those in `but`, which are counted elsewhere. The bound
    `others` are asked for resources that the totals do not count. A node that runs as many pods as it may is short of
    PODS, and nothing else is looked at."""
    offered, uid = node.status.allocatable or {}, pod.metadata.uid
    if PODS in offered and totals.pods_on(node.key, without=uid) >= whole(str(offered[PODS])):
        return [PODS]
    host, left = pod.host, totals.host_left(node.key, without=uid)

    def is_short(name: str) -> bool:
        if (amount := _OF_HOST.get(name)) is not None:
            return amount(host) > (amount(left) if name in offered else 0)
        wanted = _requests(pod, name)
        return wanted > 0 and wanted > milli(str(offered.get(name, 0))) - _taken(name, pod, others)

    asked = {*_OF_HOST, *(name for container, _ in pod.containers() for name in container.requests)}.difference(but)
    return [name for name in sorted(asked) if is_short(name)]


def _taken(resource: str, pod: Pod, others: Iterable[Pod]) -> int:
    living = (other for other in others if not other.ended and other.metadata.uid != pod.metadata.uid)
    return sum(_requests(other, resource) for other in living)


def _requests(pod: Pod, resource: str) -> int:
    try:
        return pod.requests(resource)
    except BadQuantity:
        return 0
