"""Kinds of cards that quotas cannot tell apart, and kinds of nodes that a forecast does not tell apart."""

from dataclasses import dataclass
from typing import NamedTuple

from aliquot.model import NO_HOST, Gpu, Host, NodeGpus


class CardKind(NamedTuple):
    """Cards that count alike. `label` is the model in the node's label, `of_mib` the memory of the whole card, which is
    the parent of a MIG instance."""

    label: str
    model: str
    of_mib: int


def kind_of(cards: NodeGpus, gpu: Gpu) -> CardKind:
    whole = cards.by_uuid.get(gpu.parent, gpu)
    return CardKind(cards.model, gpu.model, max(1, whole.mib))


@dataclass(frozen=True, slots=True)
class CardType:
    """Cards that no quota can tell apart; `gpu` stands for all of them."""

    kind: CardKind
    gpu: Gpu
    unit_mib: int


def card_type(cards: NodeGpus, gpu: Gpu) -> CardType:
    alike = Gpu("", 0, 0, gpu.model, gpu.mib, slots=gpu.slots)
    return CardType(kind_of(cards, gpu), alike, cards.unit_mib)


@dataclass(frozen=True, slots=True)
class NodeKind:
    """`cards` sellable cards with this much memory of this model, or of the first one's if they differ. `host` is about
    what a node has without any pod: nodes of one kind differ by a few MiB."""

    model: str = ""
    mib: int = 0
    cards: int = 0
    host: Host = NO_HOST


def node_kind(cards: NodeGpus, host: Host) -> NodeKind:
    sold = [gpu for gpu in cards.gpus if cards.sells(gpu)]
    if not sold:
        return NodeKind()
    return NodeKind(sold[0].model, sold[0].mib, len(sold), Host(_about(host.cpu), _about(host.memory)))


def _about(amount: int) -> int:
    """The nearest number with four significant bits."""
    step = 1 << max(0, amount.bit_length() - 4)
    return (amount + step // 2) // step * step
