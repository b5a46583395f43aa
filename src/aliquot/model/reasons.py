"""Why a node is refused. Dialects translate these into the words of their originals. The texts never contain changing
numbers."""

from enum import Enum


class Reason(Enum):
    """The values are the texts that users see.

    Code that depends on the reason uses `match` without a default, so that mypy names each place for a new reason.
    tests/unit/engine/test_every_place.py demands an example of each.
    """

    UNKNOWN_NODE = "unknown node"
    NO_GPUS = "the node has no GPU that Aliquot shares"
    NOT_SERVED = "the node does not serve this kind of GPU request"
    WRONG_POOL = "the namespace's GPU quota does not include the node's pool"
    NOT_IN_QUOTA = "the namespace's GPU quota does not name the node's model"
    OVER_QUOTA = "the namespace's GPU quota for the node's model is used up"
    WRONG_MODEL = "no GPU of the requested model"
    WRONG_CARD = "no GPU that the pod's constraints allow"
    NOT_PROMISED = "another device plugin chooses the node's GPUs and cannot promise those that the pod asks for"
    NOT_SELLABLE = "every GPU that matches is unhealthy or cordoned"
    WRONG_MODE = "every GPU that matches is shared in another mode"
    TOO_LARGE = "request exceeds the node's GPUs even when empty"
    NO_TOPOLOGY = "not enough connected GPUs"
    NO_CARD_FITS = "not enough room on the node's GPUs now"
    SEARCH_LIMIT = "search limit reached; a placement may still exist"

    @property
    def is_hopeless(self) -> bool:
        """Whether the node stays refused, whichever pods end."""
        match self:
            case (
                Reason.UNKNOWN_NODE
                | Reason.NO_GPUS
                | Reason.NOT_SERVED
                | Reason.WRONG_POOL
                | Reason.NOT_IN_QUOTA
                | Reason.WRONG_MODEL
                | Reason.WRONG_CARD
                | Reason.NOT_PROMISED
                | Reason.NOT_SELLABLE
                | Reason.TOO_LARGE
            ):
                return True
            case Reason.OVER_QUOTA | Reason.WRONG_MODE | Reason.NO_TOPOLOGY | Reason.NO_CARD_FITS | Reason.SEARCH_LIMIT:
                return False


OF_MODEL = frozenset((Reason.NOT_IN_QUOTA, Reason.OVER_QUOTA))
"""Reasons whose text depends on the node's model."""
