"""Vocabularies: each dialect is one module that declares all about itself."""

from aliquot.dialects.protocol import Dialect
from aliquot.dialects.reading import Demand, Holding, cards_of, demand_of, holding_of, placement_of
from aliquot.dialects.table import DIALECTS, dialect_of

__all__ = [
    "DIALECTS",
    "Dialect",
    "dialect_of",
    "Demand",
    "demand_of",
    "cards_of",
    "Holding",
    "holding_of",
    "placement_of",
]
