"""Limit of reservations and claims per namespace: a single tenant must not take every card."""

from aliquot.errors import Refused
from aliquot.ledger import Ledger, State


def require_claim_limit(ledger: Ledger, uid: str, node: str, namespace: str, limit: int) -> None:
    """Raises Refused if a pod may not get another reservation or claim."""
    held = ledger.entry(uid, node)
    if held is not None and held.state is not State.BOUND:
        return  # the new one replaces it
    if ledger.unbound_of(namespace) >= limit:
        raise Refused(
            f"namespace {namespace} already has {limit} unbound pods with reserved or claimed cards, the maximum "
            "(commit.claimsPerNamespace); try again when one of them is bound or gone"
        )
