"""CPU and memory of a node: what a pod requests besides cards, and what a node has left for pods."""

from dataclasses import dataclass

UNKNOWN = 1 << 40
"""More than any node has: where nobody knows what is left, nothing is short."""


@dataclass(frozen=True, slots=True)
class Host:
    """`cpu` in thousandths of a core, `memory` in MiB."""

    cpu: int = 0
    memory: int = 0


NO_HOST = Host()
UNKNOWN_HOST = Host(UNKNOWN, UNKNOWN)
