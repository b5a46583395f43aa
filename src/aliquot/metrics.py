"""Every metric of the control plane. `/metrics` serves them all.

Code that does something counts it here. State, such as the role or the number of nodes, is read from the control plane
when `/metrics` is read, so that no code has to keep it up to date.

Name, kind and help are the documentation: a test compares the table in docs/metrics.md with this file.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from aliquot import counts
from aliquot.prometheus_labels import escaped

disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds. kube-scheduler waits 5 s for an extender by default, so longer times do not matter."""

# -- the process

BUILD = Info("aliquot_build", "Version of this server.", registry=REGISTRY)
CONFIG_VALID = Gauge(
    "aliquot_config_valid",
    "1 while the configuration is valid, 0 while the server keeps the last valid one.",
    registry=REGISTRY,
)
CONFIG_RELOADS = Counter(
    "aliquot_config_reloads", "Changes of the configuration, by outcome.", ["outcome"], registry=REGISTRY
)
CONFIG_RESTART = Gauge("aliquot_config_restart_needed", "Keys whose new value needs a restart.", registry=REGISTRY)

READY = Gauge(
    "aliquot_ready",
    "1 while this server can decide or can forward to the holder of the Lease. An endpoint may still be unready: "
    "see its /readyz.",
    registry=REGISTRY,
)

LOOP_SILENCE = Gauge(
    "aliquot_loop_silence_seconds",
    "How long the main event loop has been busy without a pause. Above half a second, all calls are late.",
    registry=REGISTRY,
)

# -- replicas

ROLE = Gauge(
    "aliquot_role",
    "1 for the role of this server: leading, following, alone or observing.",
    ["role"],
    registry=REGISTRY,
)
EPOCH = Gauge("aliquot_epoch", "The epoch that this server writes into its commits; 0 without one.", registry=REGISTRY)
TERMS = Counter(
    "aliquot_lease_terms", "How often this server acquired or lost the Lease.", ["change"], registry=REGISTRY
)
FORWARDED = Counter(
    "aliquot_forwarded", "Calls forwarded to the holder of the Lease.", ["verb", "outcome"], registry=REGISTRY
)

# -- following the cluster

INFORMER_OBJECTS = Gauge(
    "aliquot_informer_objects", "Objects in the server's informer caches, by kind.", ["kind"], registry=REGISTRY
)
INFORMER_SYNCED = Gauge(
    "aliquot_informer_synced",
    "1 while the informer cache of the kind is in sync with the API server.",
    ["kind"],
    registry=REGISTRY,
)
INFORMER_SILENCE = Gauge(
    "aliquot_informer_silence_seconds",
    "Seconds since the last event of a kind from the API server, which sends bookmarks about once a minute.",
    ["kind"],
    registry=REGISTRY,
)
SILENT_AGENTS = Gauge(
    "aliquot_silent_agents", "Nodes whose agent has not renewed its Lease in time.", registry=REGISTRY
)


class _ApiRequests(Collector):
    def collect(self) -> Iterable[CounterMetricFamily]:
        requests = CounterMetricFamily(
            "aliquot_api_requests", "Requests to the API server, by method and status code.", labels=("method", "code")
        )
        for labels, count in counts.API_REQUESTS.items():
            requests.add_metric(labels, count)
        return (requests,)


REGISTRY.register(_ApiRequests())

# -- listening

CONNECTIONS = Gauge(
    "aliquot_connections", "Open connections of schedulers and others.", ["endpoint"], registry=REGISTRY
)
IN_FLIGHT = Gauge("aliquot_calls_in_flight", "Calls in progress.", ["endpoint"], registry=REGISTRY)
STREAMS = Gauge("aliquot_open_watches", "Open watches of the query API.", ["endpoint"], registry=REGISTRY)
REJECTED = Counter(
    "aliquot_rejected_calls",
    "Calls and connections that the server rejected or closed, by cause.",
    ["cause"],
    registry=REGISTRY,
)


class _OptionalGauge(Collector):
    """A gauge without a series until it is set: a rule on it does not fire where it does not apply."""

    def __init__(self, name: str, documentation: str) -> None:
        self._family = GaugeMetricFamily(name, documentation)

    def set(self, value: float) -> None:
        self._family.samples = []
        self._family.add_metric((), value)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return (self._family,)


TLS_VALID = _OptionalGauge(
    "aliquot_tls_valid",
    "1 while the certificate files are valid and not expired; otherwise the server keeps the last valid ones, if any. "
    "Absent without TLS.",
)
TLS_EXPIRES = _OptionalGauge(
    "aliquot_tls_expires_timestamp_seconds",
    "Expiry of the server's certificate in seconds since 1970. Absent without TLS.",
)
REGISTRY.register(TLS_VALID)
REGISTRY.register(TLS_EXPIRES)
TLS_RELOADS = Counter(
    "aliquot_tls_reloads", "Changes of the certificate files, by outcome.", ["outcome"], registry=REGISTRY
)

# -- deciding and committing

DECISIONS = Counter("aliquot_decisions", "Answers to schedulers.", ["verb", "dialect", "outcome"], registry=REGISTRY)
DECISION_SECONDS = Histogram(
    "aliquot_decision_seconds",
    "How long an answer to a scheduler took.",
    ["verb", "dialect"],
    buckets=_FAST,
    registry=REGISTRY,
)
REFUSALS = Counter(
    "aliquot_refusals", "Nodes refused in answers to schedulers, by reason.", ["reason"], registry=REGISTRY
)
SEARCHES = Counter(
    "aliquot_searches",
    "Searches for a place for a pod with several GPU containers, by outcome: found, fits_nowhere, given_up, or not "
    "started because the pod or its namespace has searched too much (pod_waits, namespace_waits).",
    ["outcome"],
    registry=REGISTRY,
)
SEARCH_SECONDS = Counter(
    "aliquot_search_seconds", "Seconds that searches took, as charged to pods and namespaces.", registry=REGISTRY
)
COMMITS = Counter("aliquot_commits", "Attempts to commit a placement, by outcome.", ["outcome"], registry=REGISTRY)
COMMIT_SECONDS = Histogram("aliquot_commit_seconds", "How long a commit took.", buckets=_FAST, registry=REGISTRY)
OPEN_BINDINGS = Gauge(
    "aliquot_open_bindings",
    "Bindings with unknown outcome. Their parts stay claimed until it is known.",
    registry=REGISTRY,
)
LATE = Counter(
    "aliquot_late_placements",
    "Pods placed after another scheduler bound them, by outcome.",
    ["outcome"],
    registry=REGISTRY,
)
WAKES = Counter(
    "aliquot_wakes",
    "Writes that make kube-scheduler requeue a refused pod that fits now, by outcome.",
    ["outcome"],
    registry=REGISTRY,
)
REFUSED_PODS = Gauge("aliquot_refused_pods", "Pods that this server refused and that still wait.", registry=REGISTRY)


@dataclass(slots=True)
class GaugeTable:
    """A gauge with thousands of series, written as a whole. The library's Gauge keeps an object for each, and takes
    seconds to set and to write them."""

    name: str
    help: str
    labels: tuple[str, ...]
    """In alphabetical order, as the library writes them."""
    rows: Sequence[tuple[tuple[str, ...], float]] = field(default=())
    """The values of the labels, and the gauge's."""

    def text(self) -> str:
        lines = [f"# HELP {self.name} {self.help}\n# TYPE {self.name} gauge\n"]
        form = self.name + "{" + ",".join(f'{label}="%s"' for label in self.labels) + "} %r\n"
        for values, value in self.rows:
            lines.append(form % (*map(escaped, values), float(value)))
        return "".join(lines)


_QUOTA_LABELS = ("measure", "model", "namespace")
QUOTA_USED = GaugeTable(
    "aliquot_quota_used",
    "What a namespace uses of a model: cards, bytes of memory, or cores in cards.",
    _QUOTA_LABELS,
)
QUOTA_LIMIT = GaugeTable(
    "aliquot_quota_limit", "What a namespace may use of a model, in the same units.", _QUOTA_LABELS
)
QUOTA_HIDDEN = Gauge(
    "aliquot_quota_hidden_limits",
    "Quota limits without metrics. The metrics cover 2,000 limits, of the namespaces that use most cards.",
    registry=REGISTRY,
)
QUOTA_VALID = Gauge(
    "aliquot_quota_valid",
    "1 while the quotas' ConfigMap is valid or absent, 0 while the server keeps the last valid quotas.",
    registry=REGISTRY,
)

# -- looking after the cluster state

AUDITS = Counter(
    "aliquot_audits",
    "Comparisons of the cluster state with the API server, by outcome.",
    ["outcome"],
    registry=REGISTRY,
)
DRIFT = Counter(
    "aliquot_audit_drift", "Differences that an audit found and repaired, by kind.", ["kind"], registry=REGISTRY
)

# -- who holds what, who uses what, who waits

_MODEL, _NODE, _NAMESPACE = ("model",), ("node",), ("namespace",)
_CARD, _POD = ("model", "node", "uuid"), ("namespace", "node", "pod")

MODEL_CARDS = GaugeTable("aliquot_model_cards", "Cards of a model. A MIG instance is a card.", _MODEL)
MODEL_ALLOCATED = GaugeTable(
    "aliquot_model_allocated_cards",
    "Cards of a model that pods hold. A part counts by its cores or its memory, whichever is more of the card.",
    _MODEL,
)
MODEL_MEMORY = GaugeTable("aliquot_model_memory_bytes", "Memory of all cards of a model.", _MODEL)
MODEL_ALLOCATED_MEMORY = GaugeTable(
    "aliquot_model_allocated_memory_bytes", "Memory of a model's cards that pods hold.", _MODEL
)
MODEL_UNAVAILABLE = GaugeTable(
    "aliquot_model_unavailable_cards", "Cards of a model that are unhealthy or cordoned.", _MODEL
)
MODEL_STRANDED = GaugeTable(
    "aliquot_model_stranded_cards",
    "Idle cards, and parts of cards, that no pod of the common shapes can use on their node.",
    _MODEL,
)
FRAGMENTED = Gauge(
    "aliquot_fragmented_cards",
    "Idle cards that a pod of a common shape finds and cannot use, on average over the shapes (FGD's measure).",
    registry=REGISTRY,
)
STARVED = Gauge(
    "aliquot_starved_cards",
    "Stranded cards whose node has too little CPU or memory left, and nothing else is missing.",
    registry=REGISTRY,
)
NODE_CARDS = GaugeTable("aliquot_node_cards", "Cards of a node.", _NODE)
NODE_ALLOCATED = GaugeTable("aliquot_node_allocated_cards", "Cards of a node that pods hold.", _NODE)
NODE_MEMORY = GaugeTable("aliquot_node_memory_bytes", "Memory of all cards of a node.", _NODE)
NODE_ALLOCATED_MEMORY = GaugeTable(
    "aliquot_node_allocated_memory_bytes", "Memory of a node's cards that pods hold.", _NODE
)
NODE_SILENCE = GaugeTable(
    "aliquot_node_agent_silence_seconds", "Seconds since a node's agent has renewed its Lease.", _NODE
)
CARD_ALLOCATED = GaugeTable("aliquot_card_allocated_ratio", "The part of a card that pods hold.", _CARD)
CARD_ALLOCATED_MEMORY = GaugeTable("aliquot_card_allocated_memory_bytes", "Memory of a card that pods hold.", _CARD)
NAMESPACE_ALLOCATED = GaugeTable(
    "aliquot_namespace_allocated_cards", "Cards of a model that a namespace's pods hold.", ("model", "namespace")
)
NAMESPACE_ALLOCATED_MEMORY = GaugeTable(
    "aliquot_namespace_allocated_memory_bytes",
    "Memory of a model's cards that a namespace's pods hold.",
    ("model", "namespace"),
)
NAMESPACE_PODS = GaugeTable("aliquot_namespace_pods", "Pods of a namespace that hold cards.", _NAMESPACE)
NAMESPACE_MEASURED = GaugeTable(
    "aliquot_namespace_measured_cards",
    "Cards that a namespace's pods hold, of pods whose use is known.",
    _NAMESPACE,
)
NAMESPACE_USED = GaugeTable(
    "aliquot_namespace_used_cards", "Cards that these pods keep busy: 1.5 is one and a half.", _NAMESPACE
)
NAMESPACE_USED_MEMORY = GaugeTable(
    "aliquot_namespace_used_memory_bytes", "Memory of cards that these pods use.", _NAMESPACE
)
NAMESPACE_UNUSED = GaugeTable(
    "aliquot_namespace_unused_cards",
    "Cards that these pods hold and do not use: by cores or memory, whichever they use more of.",
    _NAMESPACE,
)
NAMESPACE_IDLE = GaugeTable(
    "aliquot_namespace_idle_cards", "Cards that a namespace's pods hold and have not used for ten minutes.", _NAMESPACE
)
POD_ALLOCATED = GaugeTable("aliquot_pod_allocated_cards", "Cards that a pod holds.", _POD)
POD_ALLOCATED_MEMORY = GaugeTable("aliquot_pod_allocated_memory_bytes", "Memory of cards that a pod holds.", _POD)
POD_USED = GaugeTable("aliquot_pod_used_cards", "Cards that a pod keeps busy, if that is known.", _POD)
POD_USED_MEMORY = GaugeTable("aliquot_pod_used_memory_bytes", "Memory of cards that a pod uses, if known.", _POD)
POD_UNUSED = GaugeTable(
    "aliquot_pod_unused_cards",
    "Cards that a pod holds and does not use, if that is known: by cores or memory, whichever it uses more of.",
    _POD,
)
POD_IDLE = GaugeTable("aliquot_pod_idle_seconds", "For how long a pod has not used its cards; 0 while it does.", _POD)
HIDDEN = GaugeTable(
    "aliquot_hidden", "Nodes, cards, pods and namespaces without series of their own, beyond the limits.", ("what",)
)
WAITING = GaugeTable(
    "aliquot_waiting_pods",
    "Pods that ask for GPUs and wait, by the reason that kubectl gpu explain and the pod's condition give. Only the "
    "leader knows.",
    ("reason",),
)
OLDEST_WAIT = GaugeTable(
    "aliquot_longest_wait_seconds", "Age of the oldest pod that waits, by reason. Only the leader knows.", ("reason",)
)

TABLES = tuple(each for each in list(globals().values()) if isinstance(each, GaugeTable))


def text() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY) + "".join(table.text() for table in TABLES).encode()
