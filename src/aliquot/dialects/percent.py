"""Cards in percent, as several dialects count them: less than 100 is a part of one card, 100 and more are whole
cards."""

from aliquot.errors import BadDemand
from aliquot.model import CORES
from aliquot.model.bounds import MAX_CARDS


def whole_cards(field: str, percent: int) -> int:
    """The number of whole cards in 100 percent or more. Raises BadDemand for a remainder, and says what to write
    instead."""
    cards, remainder = divmod(percent, CORES)
    if cards > MAX_CARDS:
        raise BadDemand(f"{field}: {percent} is more than any node has; {CORES} is one whole card")
    if remainder:
        raise BadDemand(
            f"{field}: {percent} is neither a part of one card (less than {CORES}) nor whole cards (a multiple of "
            f"{CORES}); write {percent - remainder} or {percent - remainder + CORES}"
        )
    return cards
