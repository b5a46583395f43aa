"""Who holds which part of which card: the one place that knows."""

from aliquot.ledger.ledger import Entry, Owner, Ledger, State

__all__ = ["Ledger", "Entry", "Owner", "State"]
