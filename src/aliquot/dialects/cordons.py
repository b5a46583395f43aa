"""A person's word about a card: annotation `cordon.aliquot.io/<uuid or index>` on its Node.

`true` cordons the card: it takes no new pods, running pods go on. `false` says that the card is good, whatever its
driver reported before. The server reads the annotation itself, so a cordon works with a dead agent, too.
"""

from collections.abc import Mapping
from dataclasses import replace

from aliquot.model import Gpu, NodeGpus

CORDON = "cordon.aliquot.io/"
YES, NO = "true", "false"


def names_of(gpu: Gpu, cards: NodeGpus) -> tuple[str, ...]:
    """The names by which annotations mean a card. What is said of a card holds for its MIG instances."""
    parent = cards.by_uuid.get(gpu.parent)
    cards_meant = (gpu,) if parent is None else (gpu, parent)
    return tuple(name for each in cards_meant for name in (each.uuid, str(each.index)))


def words(annotations: Mapping[str, str], cards: NodeGpus) -> Mapping[str, str]:
    """`true` or `false` for each card about which there is a word, by uuid. `true` wins over `false`."""
    if not any(key.startswith(CORDON) for key in annotations):
        return {}
    said = {
        gpu.uuid: {annotations.get(CORDON + name) for name in names_of(gpu, cards)} & {YES, NO} for gpu in cards.gpus
    }
    return {uuid: YES if YES in own else NO for uuid, own in said.items() if own}


def cordoned(cards: NodeGpus, annotations: Mapping[str, str]) -> NodeGpus:
    """The same node with the cards cordoned that a person has cordoned."""
    said = words(annotations, cards)
    if YES not in said.values():
        return cards
    return replace(cards, gpus=tuple(replace(g, cordoned=g.cordoned or said.get(g.uuid) == YES) for g in cards.gpus))
