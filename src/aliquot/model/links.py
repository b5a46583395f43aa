"""How well two cards reach each other: one number per pair, the sum of the PCIe path and the NVLinks.

The scale is that of the scores which device plugins publish for pairs of cards, so they need no conversion.
"""

from enum import IntEnum

NVLINK = 100
"""Each NVLink between a pair adds this much."""


class Pcie(IntEnum):
    """The closest component that two cards share on the PCIe path."""

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
    """The PCIe path of a score. A value between two steps counts as the lower step."""
    way = score % NVLINK
    return max(step for step in Pcie if step <= way)
