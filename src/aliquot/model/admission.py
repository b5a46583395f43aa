"""What the API server's admission policies of Aliquot are called, and what they refuse in our own name."""

from aliquot.model.records import EPOCH, PLACEMENT

FENCING = "aliquot-fencing"
FORGERY = "aliquot-forgery"
PARAMETERS = "aliquot-parameters"
AGENT_REACH = "aliquot-agent-reach"
SERVER_REACH = "aliquot-server-reach"
"""ValidatingAdmissionPolicies, each with a binding of the same name: who writes late, who writes what is not theirs,
who deletes what the first two read, and what our own accounts may write."""

AGENT_ACCOUNT = "aliquot-agent"
SERVER_ACCOUNT = "aliquot-server"
"""Our service accounts."""
NODE_OF_TOKEN = "authentication.kubernetes.io/node-name"
"""Where the API server says on which node the pod is that a token was made for."""

EPOCH_MAP = "aliquot-epoch"
EPOCH_KEY = "epoch"
WRITERS_MAP = "aliquot-writers"
OUR_LIST = "aliquot"
"""The ConfigMaps that they read: the number of the current term, and accounts by dialect; ours are in a list of their
own, and may write every key."""

NO_ROOM = "AliquotNoRoom"
"""The reason in the status of a pod that was bound where it does not fit."""

WOKEN = "aliquot.io/woken"
FENCED_KEYS = (PLACEMENT, EPOCH)
OUR_KEYS = (*FENCED_KEYS, WOKEN)
"""On pods, always ours to write, whatever they ask for."""

STALE_EPOCH = f"ValidatingAdmissionPolicy '{FENCING}'"
"""In the message of every refusal by the fencing policy: who reads it does not lead."""
