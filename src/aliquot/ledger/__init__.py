"""Who holds which part of which card: the one place that knows."""

from aliquot.ledger.ledger import Entry, Ledger, Owner, State

__all__ = ["Ledger", "Entry", "Owner", "State"]
