"""How much may be kept for pods of one namespace that are not bound: one tenant must not keep every card for itself."""

from aliquot.errors import Refused
from aliquot.ledger import Ledger, State


def require_allowance(ledger: Ledger, uid: str, node: str, namespace: str, most: int) -> None:
    """Before a pod gets another claim. Raises Refused."""
    held = ledger.entry(uid, node)
    if held is not None and held.state is State.CLAIMED:
        return  # it only replaces this one
    if ledger.claims_of(namespace) >= most:
        raise Refused(
            f"namespace {namespace} has {most} pods for which cards are kept and which are not bound yet: "
            "no more are kept until one of them is bound or gone (commit.claimsPerNamespace)"
        )
