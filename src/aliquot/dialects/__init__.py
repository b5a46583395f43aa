"""Dialects: the vocabularies in which pods ask for GPUs. Each dialect is one module that declares everything about it.

This package exports what you need to write your own dialect; docs/extend.md shows how.
"""

from aliquot.dialects.holding import Demand, Holding
from aliquot.dialects.node_reading import cards_of, dialects_of_node, registered_on
from aliquot.dialects.protocol import (
    Dialect,
    Resource,
    capacity_of,
    card_at,
    card_called,
    card_numbers,
    cards_asked,
    equal_cards,
    limit,
    names_in,
    placed_on,
    places,
    plain_number,
    sample,
)
from aliquot.dialects.reading import (
    demand_of,
    holding_among,
    holding_as_given,
    holding_of,
    placement_of,
)
from aliquot.dialects.table import Dialects, make_dialects, standard_dialects

__all__ = [
    "Dialect",
    "Resource",
    "limit",
    "cards_asked",
    "places",
    "plain_number",
    "names_in",
    "capacity_of",
    "equal_cards",
    "card_numbers",
    "card_at",
    "card_called",
    "placed_on",
    "sample",
    "Dialects",
    "make_dialects",
    "standard_dialects",
    "Demand",
    "demand_of",
    "cards_of",
    "Holding",
    "holding_of",
    "holding_among",
    "holding_as_given",
    "placement_of",
    "registered_on",
    "dialects_of_node",
]
