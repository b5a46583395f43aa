"""Names of Aliquot's admission policies, of the accounts and ConfigMaps they read, and of the keys they protect."""

from aliquot.model.records import EPOCH, OBSERVED, PLACEMENT

FENCING = "aliquot-fencing"
FORGERY = "aliquot-forgery"
PARAMETERS = "aliquot-parameters"
AGENT_REACH = "aliquot-agent-reach"
SERVER_REACH = "aliquot-server-reach"
"""ValidatingAdmissionPolicies, each with a binding of the same name. In order: they stop late writes of an old leader,
writes of keys by the wrong account, the deletion of what these two read, and writes of our own accounts beyond their
task."""

AGENT_ACCOUNT = "aliquot-agent"
SERVER_ACCOUNT = "aliquot-server"
"""Our service accounts."""
NODE_OF_TOKEN = "authentication.kubernetes.io/node-name"
"""The key under which the API server names the node of the pod that a token was issued for."""

EPOCH_MAP = "aliquot-epoch"
EPOCH_KEY = "epoch"
WRITERS_MAP = "aliquot-writers"
OUR_LIST = "aliquot"
"""The ConfigMaps that the policies read: the number of the current leadership term, and the accounts of each dialect.
Our own accounts have a list of their own and may write every key."""

NO_ROOM = "AliquotNoRoom"
"""The reason in the status of a pod that was bound to a node where it does not fit."""

PLACEABLE = "aliquot.io/Placeable"
"""The condition of a waiting pod in which the server writes why it cannot be placed. A bound pod has none."""

CARDS_HEALTHY = "AliquotCardsHealthy"
CARDS_GUARDED = "AliquotCardsGuarded"
NODE_CONDITIONS = (CARDS_HEALTHY, CARDS_GUARDED)
"""The conditions of a Node in which its agent reports the health of the cards, and whether containers can get cards
without asking for any."""

WOKEN = "aliquot.io/woken"
FENCED_KEYS = (PLACEMENT, EPOCH)
SERVER_KEYS = (*FENCED_KEYS, WOKEN)
OUR_KEYS = (*SERVER_KEYS, OBSERVED)
"""Keys on pods that only Aliquot may write, whatever the pod asks for. The last one is the agents'."""

STALE_EPOCH = f"ValidatingAdmissionPolicy '{FENCING}'"
"""Part of the message of every refusal by the fencing policy. A writer that sees it is not the leader."""
