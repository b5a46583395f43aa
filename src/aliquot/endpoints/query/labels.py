"""Labels of the query API's objects, beside those of the node or pod itself."""

from collections.abc import Iterable

NODE = "aliquot.io/node"
NAMESPACE = "aliquot.io/namespace"
MODEL = "aliquot.io/model"
"""The model of all cards, if there is only one."""
ORIGINAL_NODE = "nvidia-gpu-scheduler.node"
"""v0.2.0's label of a GpuPod."""


def only(values: Iterable[str]) -> str:
    """The one value; empty if there are several, or none."""
    found = set(values)
    return found.pop() if len(found) == 1 else ""
