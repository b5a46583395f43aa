"""Kinds of cards that quotas cannot tell apart."""

from dataclasses import dataclass

from aliquot.model import Gpu, NodeGpus


@dataclass(frozen=True, slots=True)
class CardKind:
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
