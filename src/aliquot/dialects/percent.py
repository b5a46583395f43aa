"""Cards in percent, as several vocabularies count them: below 100 a part of one card, from 100 on whole cards."""

from aliquot.errors import BadDemand
from aliquot.model import CORES
from aliquot.model.bounds import MAX_CARDS


def whole_cards(field: str, percent: int) -> int:
    """How many whole cards 100 percent or more are. Raises BadDemand for a remainder, with what to write instead."""
    cards, remainder = divmod(percent, CORES)
    if cards > MAX_CARDS:
        raise BadDemand(f"{field}: {percent} is more than any node has; {CORES} is one whole card")
    if remainder:
        raise BadDemand(
            f"{field}: {percent} is neither a part of one card (less than {CORES}) nor whole cards (a multiple of "
            f"{CORES}); write {percent - remainder} or {percent - remainder + CORES}"
        )
    return cards
