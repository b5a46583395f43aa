"""What the original computes: units of GPU memory per node, card and pod."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from aliquot.dialects.gpushare import IDX
from aliquot.dialects.gpushare_records import ALLOCATION, read_allocation
from aliquot.errors import BadQuantity
from aliquot.model.bounds import MAX_CARDS
from aliquot.model.kubernetes import Object, Pod, Quantity
from aliquot.model.quantity import whole

PENDING = -1
"""The card of a pod that is on the node and has no index of a card."""

_MEMORY, _COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
_NUMBER = re.compile(r"[+-]?\d{1,9}", re.ASCII)
_GIB_UP_TO = 100
"""Cards with more units than this count them in MiB."""


class Address(msgspec.Struct, frozen=True):
    type: str = ""
    address: str = ""


class InspectedStatus(msgspec.Struct, frozen=True):
    allocatable: dict[str, Quantity] | None = None
    addresses: list[Address] | None = None


class InspectedNode(Object, frozen=True):
    status: InspectedStatus = InspectedStatus()


@dataclass(frozen=True)
class PodUse:
    name: str
    namespace: str
    units: Mapping[int, int]
    """By card, or PENDING."""


@dataclass(frozen=True)
class NodeUse:
    name: str
    address: str
    total: int
    cards: int
    pods: Sequence[PodUse]

    @property
    def card_total(self) -> int:
        return self.total // self.cards if self.cards else 0

    def used(self, card: int) -> int:
        return sum(pod.units.get(card, 0) for pod in self.pods)

    @property
    def shown(self) -> int:
        """Units on the cards that the node has, and pending ones."""
        return sum(map(self.used, range(self.cards))) + self.used(PENDING)

    @property
    def counted(self) -> int:
        """Units of all pods, also on cards that the node does not have."""
        return sum(sum(pod.units.values()) for pod in self.pods)


def usage(nodes: Iterable[InspectedNode], pods: Iterable[Pod]) -> list[NodeUse]:
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if not pod.has_final_phase and _limit(pod) > 0:
            by_node.setdefault(pod.spec.node_name, []).append(pod)
    found = (_node_use(node, by_node.get(node.metadata.name, [])) for node in nodes)
    return sorted(found, key=lambda node: node.name)


def unit_of(nodes: Iterable[NodeUse]) -> str:
    first = next((node for node in nodes if node.cards), None)
    if first is None:
        return ""
    return "MiB" if first.card_total > _GIB_UP_TO else "GiB"


def _node_use(node: InspectedNode, pods: Sequence[Pod]) -> NodeUse:
    addresses = node.status.addresses or ()
    address = next((each.address for each in addresses if each.type == "InternalIP"), "unknown")
    amounts = node.status.allocatable or {}
    uses = [PodUse(pod.metadata.name, pod.metadata.namespace, _units(pod)) for pod in pods]
    cards = min(_amount(amounts, _COUNT), MAX_CARDS)  # each is a column
    return NodeUse(node.metadata.name, address, _amount(amounts, _MEMORY), cards, sorted(uses, key=_order))


def _order(pod: PodUse) -> tuple[bool, int, str, str]:
    """By the first card, pending pods last."""
    first = min(pod.units)
    return first == PENDING, first, pod.namespace, pod.name


def _units(pod: Pod) -> Mapping[int, int]:
    annotations = pod.metadata.annotations
    if by_place := read_allocation(annotations.get(ALLOCATION, "")):
        units: Counter[int] = Counter()
        for own in by_place.values():
            units.update(own)
        return units
    text = annotations.get(IDX, "")
    return {int(text) if _NUMBER.fullmatch(text) else PENDING: _limit(pod)}


def _limit(pod: Pod) -> int:
    return sum(_amount(container.limits, _MEMORY) for container in pod.spec.containers)


def _amount(amounts: Mapping[str, Quantity], resource: str) -> int:
    try:
        return whole(str(amounts.get(resource, 0)))
    except BadQuantity:
        return 0
