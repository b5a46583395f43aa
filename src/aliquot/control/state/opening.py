"""A change of the cluster state that may have made room."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Opening:
    """Room on a node, or in the quota of a namespace; without either, anywhere.

    `heard`: kube-scheduler sees the event behind it, and retries waiting pods by itself.
    """

    node: str = ""
    namespace: str = ""
    heard: bool = False
