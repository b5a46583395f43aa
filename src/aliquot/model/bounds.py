"""How much of anything is read: what is larger is refused where it enters. docs/limits.md lists these bounds, and what
happens beyond each."""

from aliquot.errors import BadInput

KIB = 2**10
MIB = 2**20

# -- nodes

MOST_CARDS = 128
"""Of one node: 16 cards that are cut into 7 MIG instances each are 16 + 112."""
LARGEST_INVENTORY = 256 * KIB
"""Bytes of a node's inventory, ours or an original's. The API server takes no more of all annotations together."""
LONGEST_NAME = 512
"""Characters of a uuid, a model or a profile in a record; the longest uuid is `<node>/<index>` with a name of 253."""

# -- pods

LARGEST_POD = 2 * MIB
"""Bytes of a pod in a call's body. etcd takes 1.5 MiB, in a shorter encoding."""
MOST_CONTAINERS = 512
"""Of one pod, init containers included."""
MOST_GPU_CONTAINERS = 32
"""Of one pod. A decision without any search takes 35 ms for so many on 5,000 nodes, and grows faster than they do."""
MOST_ITEMS = 4096
"""Of any list or object in a pod that a body has: containers, annotations, labels, limits."""
MOST_OBJECTS = 100_000
"""Nodes, their names, victims and tasks in one body. The largest clusters have 65,000 nodes."""
LARGEST_NAMES = 16 * MIB
"""Bytes of the node names in a body."""
MOST_GUESTS = 4096
"""Pods in one call of Volcano's that are on nodes there and not yet in our books."""
MOST_GUESTS_OF_NODE = 256
"""Of these, on one node. By default kubelet runs 110 pods."""
LARGEST_AMOUNTS = 64 * KIB
"""Bytes of what a task of Volcano's needs, or of what is idle on a node."""
LARGEST_RECORD = 64 * KIB
"""Bytes of a pod's annotation that says which cards it has, ours or an original's."""
LARGEST_WISH = 16 * KIB
"""Bytes of a pod's annotation that says which cards it wants."""
MOST_NAMES = 256
"""Models or uuids in one such annotation."""

# -- ConfigMaps and files

LARGEST_CONFIG = 64 * KIB
"""Bytes of the server's configuration."""
DEEPEST_CONFIG = 16
"""Levels of it; the deepest key has four."""
MOST_CONFIG_VALUES = 1024
"""Keys, values, lists and mappings in it."""
LARGEST_QUOTAS = MIB
"""Bytes of the quotas: the API server takes no larger ConfigMap."""
MOST_QUOTA_ENTRIES = 50_000
"""Namespaces, their fields and their limits in the quotas. Of one namespace there are at most MOST_NAMES limits in each
measure, and as many pools."""
LARGEST_UNHEALTHY = 4 * KIB
"""Bytes of one node's list of unhealthy cards."""


def require_size(what: str, text: str, most: int, error: type[BadInput]) -> None:
    """Raises `error`, naming the field, for a text of more bytes than are read."""
    if len(text) > most or (len(text) > most // 4 and len(text.encode(errors="replace")) > most):
        raise error(f"{what} has more than {most} bytes; no more is read")
