"""Nodes that are closed to a pod, whatever their cards."""

from aliquot.model import Node, Pod


def why_closed(node: Node, pod: Pod) -> str:
    """Empty if it is not. What takes more to tell, such as taints and affinities, is left to kube-scheduler."""
    wanted = (pod.spec.node_selector or {}).items()
    if not wanted <= node.metadata.labels.items():
        return "the node has not the labels that the pod selects"
    if node.spec.unschedulable:
        return "the node is cordoned"
    return "" if node.ready else "the node is not ready"
