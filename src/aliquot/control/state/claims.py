"""Validation of earlier claims against the current cluster state."""

from aliquot.control.state.totals import Totals
from aliquot.ledger import Entry
from aliquot.model import NodeGpus, Part, Request, Slice, card_of, cut


def suits(claim: Entry, request: Request, totals: Totals) -> bool:
    """Whether a claim is still valid and has the size that the pod asks for now: users may change that."""
    cards, held = totals.cards(claim.node), claim.placement.containers
    if not _is_good(claim, totals):
        return False
    asked = {container.name: container.part for container in request.on(cards).containers}
    return asked.keys() == held.keys() and all(
        len(held[name]) == part.cards and all(_is_cut_for(part, own, cards) for own in held[name])
        for name, part in asked.items()
    )


def _is_good(claim: Entry, totals: Totals) -> bool:
    """Whether the claim's cards exist, are healthy and are not oversold."""
    cards, oversold = totals.cards(claim.node), set(totals.ledger.oversold(claim.node))
    own = [cards.by_uuid.get(uuid) for uuid in claim.charges]
    return all(gpu is not None and cards.sells(gpu) and gpu.uuid not in oversold for gpu in own)


def _is_cut_for(part: Part, own: Slice, cards: NodeGpus) -> bool:
    gpu = card_of(own, cards)
    return gpu is not None and cut(part, gpu, cards.unit_mib).charge == own.charge
