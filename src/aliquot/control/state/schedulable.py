"""Nodes closed to a pod, regardless of their cards."""

from collections.abc import Callable

from aliquot.model import Node, Pod


def why_closed(node: Node, pod: Pod) -> str:
    """Why a node is closed to a pod; empty if it is open. kube-scheduler checks the rest, such as taints and
    affinities."""
    wanted = (pod.spec.node_selector or {}).items()
    if not wanted <= node.metadata.labels.items():
        return "the node does not match the pod's node selector"
    if node.spec.unschedulable:
        return "the node is cordoned"
    return "" if node.ready else "the node is not ready"


class OpenNodes:
    """The nodes open to a pod, computed once for all pods with the same node selector."""

    def __init__(self, node_called: Callable[[str], Node | None]) -> None:
        self._node_called = node_called
        self._known: dict[frozenset[tuple[str, str]], dict[str, bool]] = {}

    def to(self, pod: Pod) -> Callable[[str], bool]:
        known = self._known.setdefault(frozenset((pod.spec.node_selector or {}).items()), {})

        def is_open(name: str) -> bool:
            if name not in known:
                node = self._node_called(name)
                known[name] = node is not None and not why_closed(node, pod)
            return known[name]

        return is_open
