"""Why a node is refused. Dialects put these into their own words; the words never hold a changing number."""

from enum import Enum


class Reason(Enum):
    UNKNOWN_NODE = "unknown node"
    NO_GPUS = "the node has no GPU that Aliquot shares"
    NOT_SERVED = "the node does not serve this kind of GPU request"
    WRONG_POOL = "the namespace's GPU quota does not include the node's pool"
    NOT_IN_QUOTA = "the namespace's GPU quota does not name the node's model"
    OVER_QUOTA = "the namespace's GPU quota for the node's model is used up"
    WRONG_MODEL = "no GPU of the wanted model"
    WRONG_CARD = "no GPU that the pod's wishes allow"
    NOT_SELLABLE = "every GPU that would do is unhealthy or cordoned"
    WRONG_MODE = "every GPU that would do is shared in another way"
    TOO_LARGE = "more than the node's GPUs have even when empty"
    NO_TOPOLOGY = "not enough connected GPUs"
    NO_CARD_FITS = "not enough room on the node's GPUs now"
    SEARCH_LIMIT = "search limit: too many ways to try, a placement may exist"


HOPELESS = frozenset(
    (
        Reason.UNKNOWN_NODE,
        Reason.NO_GPUS,
        Reason.NOT_SERVED,
        Reason.WRONG_POOL,
        Reason.NOT_IN_QUOTA,
        Reason.WRONG_MODEL,
        Reason.WRONG_CARD,
        Reason.NOT_SELLABLE,
        Reason.TOO_LARGE,
    )
)
"""No pod's end changes these."""

OF_MODEL = frozenset((Reason.NOT_IN_QUOTA, Reason.OVER_QUOTA))
"""What these say depends on the node's model."""
