"""Where a change of the cluster state may have made room."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Opening:
    """On a node, or within the quota of a namespace; without either it may be anywhere.

    `heard`: kube-scheduler sees the event behind it, and retries waiting pods by itself.
    """

    node: str = ""
    namespace: str = ""
    heard: bool = False
