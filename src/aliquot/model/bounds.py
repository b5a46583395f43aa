"""Upper bounds on what Aliquot reads and keeps. Aliquot refuses larger input where it enters, and forgets the oldest of
what it keeps. docs/limits.md lists these bounds and what happens beyond each."""

from aliquot.errors import BadInput

KIB = 2**10
MIB = 2**20

# -- nodes

MAX_CARDS = 128
"""Cards of one node: 16 cards that are each cut into 7 MIG instances make 16 + 112."""
LARGEST_XID = 999
"""Codes of XID errors that have a metric each. A driver that reports nonsense must not fill the agent's memory."""
LARGEST_INVENTORY = 256 * KIB
"""Bytes of a node's inventory, ours or an original's. The API server accepts no more for all annotations together."""
LONGEST_NAME = 512
"""Characters of a uuid, a model or a profile in a record. The longest uuid is `<node>/<index>` with a node name of
253."""
MAX_MIB = 2**24
"""No card has more memory; a record that says so is nonsense."""

# -- pods

MAX_MEASURED_PODS = 256
"""Pods of one node whose use of cards its Lease reports."""
LARGEST_POD = 2 * MIB
"""Bytes of a pod in the body of a call. etcd accepts 1.5 MiB, in a shorter encoding."""
MAX_CONTAINERS = 512
"""Containers of one pod, including init containers."""
MAX_GPU_CONTAINERS = 32
"""Containers of one pod that ask for GPUs. With this many, a decision on 5,000 nodes takes 35 ms without any search,
and the time grows faster than their number."""
MAX_ITEMS = 4096
"""Items of any list or object in a pod in a body: containers, annotations, labels, limits."""
LONGEST_ID = 253
"""Characters of a UID, a name or a namespace in a body. Kubernetes' own names have no more, and its UIDs have 36."""
MAX_OBJECTS = 100_000
"""Nodes, their names, victims and tasks in one body. The largest clusters have 65,000 nodes."""
LARGEST_NAMES = 16 * MIB
"""Bytes of all node names in a body."""
MAX_ASSUMED_PODS = 4096
"""Pods in one Volcano call that Volcano has placed on nodes and that our cluster state does not know yet."""
MAX_ASSUMED_PODS_OF_NODE = 256
"""Of these, on one node. By default kubelet runs 110 pods."""
LARGEST_AMOUNTS = 64 * KIB
"""Bytes of what a Volcano task needs, or of what is idle on a node."""
LARGEST_RECORD = 64 * KIB
"""Bytes of a pod's annotation that records its cards, ours or an original's."""
LARGEST_CONSTRAINT = 16 * KIB
"""Bytes of a pod's annotation that names the cards it wants."""
MAX_NAMES = 256
"""Models or uuids in one such annotation."""

# -- amounts

LONGEST_QUANTITY = 64
"""Characters of a Kubernetes quantity."""
LARGEST_QUANTITY = 2**63 - 1
"""As in Kubernetes."""
MAX_UNITS = 10**9
"""Units of gpushare's memory that a container may ask for, and that a record may name."""
MAX_ELASTIC_MEMORY = 10**8
"""Units of elastic-gpu's memory that a container may ask for."""
MAX_BLOCKS = 100_000
"""Blocks of tencent's memory that a container may ask for."""
MAX_SLOTS = 1024
"""MPS slots of a card that a container may ask for."""

# -- what comes from the API server

LONGEST_LINE = 8 * MIB
"""Bytes of one line of a watch: an object and what the API server writes around it."""

LARGEST_ANSWER = 1024 * MIB
"""Bytes of an inflated body: a page of a list has 500 objects of at most 1.5 MiB each."""
LARGEST_REFUSAL = MIB
"""The same of an answer that is an error."""

LARGEST_HISTORY = MIB
"""Bytes of an answer of Prometheus: 240 samples are 10 KB."""

# -- calls

LARGEST_HEAD = 64 * KIB
"""Bytes of the first line and headers of a call, and of an answer of the API server."""
LONGEST_PATH = 1024
"""Characters of a path at the query API. Rights are remembered with it."""
MAX_SELECTOR_TERMS = 64
"""Requirements of a label selector or a field selector. A list compares each object with all of them."""
LONGEST_PROFILE = 300.0
"""Seconds."""
MAX_SHOWN_NAMESPACES = 1000
"""Namespaces in /metrics, those that hold most cards."""
MAX_SHOWN_LIMITS = 2000
"""Limits of quotas in /metrics. More would be too many for Prometheus, and would delay decisions during a scrape."""

# -- what is remembered of calls; of more, the oldest is forgotten

MAX_WAITING = 20_000
"""Refused pods that wait for room. kube-scheduler asks again for a forgotten pod when anything changes."""
MAX_WAITING_OF_NAMESPACE = 2_000
MAX_PASSES = 20_000
"""Pods that a filter let pass and that are not bound yet."""
MAX_PASSES_OF_NAMESPACE = 5_000
"""More than a gang has: its pods wait for one another before they are bound."""
MAX_DECISIONS = 20_000
"""Pods whose last decision is remembered while there is a decision log."""
MAX_PREEMPTIONS = 1024
"""Pods for which we named victims."""
MAX_PREEMPTIONS_OF_NAMESPACE = 256
MAX_UNKNOWN = 1_000
"""Pods that the informer cache does not know: this many that passed, and the UIDs of this many that were refused."""
MAX_UNKNOWN_PREEMPTIONS = 128
"""Such pods for which we named victims."""

# -- ConfigMaps and files

LARGEST_CONFIG = 64 * KIB
"""Bytes of the server's configuration."""
DEEPEST_CONFIG = 16
"""Levels of the server's configuration. The deepest key has four."""
MAX_CONFIG_VALUES = 1024
"""Keys, values, lists and mappings in the server's configuration."""
LARGEST_QUOTAS = MIB
"""Bytes of the quotas. The API server accepts no larger ConfigMap."""
MAX_QUOTA_ENTRIES = 50_000
"""Namespaces, their fields and their limits in the quotas. Each namespace has at most MAX_NAMES limits per measure, and
at most MAX_NAMES pools."""
MAX_QUOTA = 2**40
"""Cards, percents of cores or MiB that one limit of a quota may name."""
LARGEST_UNHEALTHY = 4 * KIB
"""Bytes of one node's list of unhealthy cards."""

LARGEST_OWN_SPEC = 4 * MIB
"""Bytes of a CDI spec in the name of our agent, which writes far smaller ones."""
LARGEST_VENDOR_SPEC = 256 * KIB
"""Bytes of a CDI spec that a vendor's program wrote on a node. One of 8 cards has 26 KiB."""
MAX_VENDOR_VALUES = 32_768
"""Keys, values, lists and mappings in it."""
LARGEST_RUNTIME_CONFIG = 64 * KIB
"""Bytes of the configuration of a vendor's container runtime."""

# -- what is kept in memory

MAX_SEARCHING_PODS, MAX_SEARCHING_NAMESPACES = 10_000, 1_000
"""Beyond this, the one that searched longest ago is forgotten."""
MAX_HISTORIES = 100_000
"""Cards, and as many pods, whose load of the last hour is kept, in 720 bytes each. Beyond this, new ones have no
history."""
MAX_HISTORIES_SHOWN = 1000
"""Pods in one answer with histories, which then has 8 MB. A note counts the others."""
MAX_HISTORIES_ASKED = 100
"""The same of an answer with more than the last hour: Prometheus is asked about each pod."""
MAX_SHAPES = 512
"""Shapes of pods that are counted for policies. Beyond this, the rarest is forgotten."""
MAX_COUNTED_PODS = 20_000
"""Pods that are counted by shape. Beyond this, every count is halved, so that old pods fade."""
MAX_ACCEPTED_TOKENS, MAX_REFUSED_TOKENS = 1024, 1024
"""Beyond this, the accepted token that was used longest ago is forgotten, or the refused token that was reviewed
longest ago. The two kinds are kept apart, so that made-up tokens do not evict accepted ones."""
MAX_KNOWN_RIGHTS = 4096
"""Rights of callers at the read endpoints. Beyond this, the right that was asked for longest ago is forgotten."""
MAX_REVIEWS = 8
"""Concurrent token reviews, so that made-up tokens do not keep the API server busy. Tokens that were accepted before
have as many again, and so have the rights of callers."""
MAX_WAITING_REVIEWS = 1000
"""Reviews of callers' rights that run or wait. Beyond this, a caller is told to try again."""
MAX_READS = 64
"""Concurrent calls at the read endpoints. They wait for their turn, and schedulers need the port's other places."""
MAX_READS_OF_CALLER = 4
"""Those of one caller, so that it leaves places, turns and reviews to others."""
MAX_LISTS_OF_CALLER = 16
"""Lists of one caller at the query API, which has as many places as the read endpoints. Informers begin all at once."""
MAX_STREAMS, MAX_STREAMS_OF_CALLER = 512, 256
"""Open watches on a port, and those of one caller. A port takes 1024 connections by default, and schedulers need some
of them."""
MAX_QUERY_EVENTS = 8192
"""Events of each kind of object that the query API remembers. A watch that falls further behind gets 410."""
MAX_EVENTS = 4096
"""Events that are counted when they repeat, and pods whose number of events is limited."""
MAX_UNWRITTEN_DECISIONS = 100_000
"""StateEvents that may wait for the disk. Beyond this, they are dropped until a new file begins."""


def require_size(what: str, text: str, most: int, error: type[BadInput]) -> None:
    """Raises `error`, which names the field, if the text is longer than `most` bytes."""
    if len(text) > most or (len(text) > most // 4 and len(text.encode(errors="replace")) > most):
        raise error(f"{what} has more than {most} bytes, the limit")
