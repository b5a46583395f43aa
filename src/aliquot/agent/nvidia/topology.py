"""How well the cards of a machine reach each other, on the scale of `aliquot.model.links`."""

from collections.abc import Collection, Mapping

import pynvml

from aliquot.agent.nvidia.card import Card
from aliquot.agent.nvidia.session import Nvml, if_known
from aliquot.model import Link
from aliquot.model.links import NVLINK, Pcie

Pair = frozenset[str]
"""The uuids of two cards."""

_PATHS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: Pcie.SAME_BOARD,
    pynvml.NVML_TOPOLOGY_SINGLE: Pcie.ONE_SWITCH,
    pynvml.NVML_TOPOLOGY_MULTIPLE: Pcie.SEVERAL_SWITCHES,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: Pcie.HOST_BRIDGE,
    pynvml.NVML_TOPOLOGY_NODE: Pcie.SAME_CPU,
    pynvml.NVML_TOPOLOGY_SYSTEM: Pcie.CROSS_CPU,
}


def pcie_paths(nvml: Nvml, card: Card, others: Collection[Card]) -> Mapping[Pair, Pcie]:
    """The PCIe paths from a card to others. Raises NVMLError if it does not answer."""
    ancestor = nvml.nvmlDeviceGetTopologyCommonAncestor
    return {
        frozenset((card.uuid, other.uuid)): _PATHS.get(
            if_known(None, ancestor, card.handle, other.handle), Pcie.UNKNOWN
        )
        for other in others
    }


def links(card: Card, cards: Collection[Card], paths: Mapping[Pair, Pcie]) -> tuple[Link, ...]:
    """How well a card reaches each other card, by uuid; cards without any known path are left out."""
    scores = (
        Link(other.uuid, NVLINK * _nvlinks(card, other) + paths.get(frozenset((card.uuid, other.uuid)), Pcie.UNKNOWN))
        for other in sorted(cards, key=lambda other: other.uuid)
        if other.uuid != card.uuid
    )
    return tuple(link for link in scores if link.score)


def _nvlinks(card: Card, other: Card) -> int:
    """The NVLinks that both cards see. Through NVSwitches a card reaches each other one with all its links."""
    direct = min(card.nvlinks.get(other.bus_id, 0), other.nvlinks.get(card.bus_id, 0))
    return direct + min(card.switch_links, other.switch_links)
