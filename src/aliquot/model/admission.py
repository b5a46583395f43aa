"""What the API server's admission policies of Aliquot are called, and what they refuse in our own name."""

from aliquot.model.records import EPOCH, PLACEMENT

FENCING = "aliquot-fencing"
FORGERY = "aliquot-forgery"
PARAMETERS = "aliquot-parameters"
"""ValidatingAdmissionPolicies, each with a binding of the same name: who writes late, who writes what is not theirs,
and who deletes what the first two read."""

EPOCH_MAP = "aliquot-epoch"
EPOCH_KEY = "epoch"
WRITERS_MAP = "aliquot-writers"
OUR_LIST = "aliquot"
"""The ConfigMaps that they read: the number of the current term, and accounts by dialect; ours are in a list of their
own, and may write every key."""

WOKEN = "aliquot.io/woken"
FENCED_KEYS = (PLACEMENT, EPOCH)
OUR_KEYS = (*FENCED_KEYS, WOKEN)
"""On pods, always ours to write, whatever they ask for."""

STALE_EPOCH = f"ValidatingAdmissionPolicy '{FENCING}'"
"""In the message of every refusal by the fencing policy: who reads it does not lead."""
