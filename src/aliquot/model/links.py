"""How well two cards reach each other: one number per pair, the sum of the way over PCIe and of the NVLinks.

The scale is the one that NVIDIA's allocator made common, so that published pair scores can be read as they are.
"""

from enum import IntEnum

NVLINK = 100
"""Each NVLink between a pair adds this much."""


class Pcie(IntEnum):
    """The closest thing that two cards share on the way over PCIe."""

    UNKNOWN = 0
    CROSS_CPU = 10
    SAME_CPU = 20
    HOST_BRIDGE = 30
    SEVERAL_SWITCHES = 40
    ONE_SWITCH = 50
    SAME_BOARD = 60


def nvlinks(score: int) -> int:
    return score // NVLINK


def pcie(score: int) -> Pcie:
    """The way over PCIe; what is between two steps counts as the lower one."""
    way = score % NVLINK
    return max(step for step in Pcie if step <= way)
