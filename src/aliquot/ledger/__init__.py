"""The ledger: the single source of truth for who holds which part of which card."""

from aliquot.ledger.ledger import Entry, Ledger, Owner, State

__all__ = ["Ledger", "Entry", "Owner", "State"]
