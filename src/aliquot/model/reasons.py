"""Why a node is refused. Dialects put these into their own words; the words never hold a changing number."""

from enum import Enum


class Reason(Enum):
    UNKNOWN_NODE = "unknown node"
    NO_GPUS = "the node has no GPU that Aliquot shares"
    NO_CARD_FITS = "no single healthy GPU has that much left"
