"""Vocabularies: each dialect is one module that declares all about itself."""

from aliquot.dialects.protocol import Dialect, Resource
from aliquot.dialects.reading import Demand, Holding, cards_of, demand_of, holding_of, placement_of
from aliquot.dialects.table import Dialects, make_dialects, standard_dialects

__all__ = [
    "Dialect",
    "Resource",
    "Dialects",
    "make_dialects",
    "standard_dialects",
    "Demand",
    "demand_of",
    "cards_of",
    "Holding",
    "holding_of",
    "placement_of",
]
