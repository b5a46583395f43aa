"""Every metric of the control plane. `/metrics` serves them all.

Code that does something counts it here. State, such as the role or the number of nodes, is read from the control plane
when somebody asks for `/metrics`, so that no code has to keep it up to date.

Name, kind and help are the documentation: a test compares the table in docs/configuration.md with this file.
"""

from collections.abc import Iterable, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from aliquot import counts

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
REJECTED = Counter(
    "aliquot_rejected_calls",
    "Calls and connections that the server rejected or closed, by cause.",
    ["cause"],
    registry=REGISTRY,
)
TLS_VALID = Gauge(
    "aliquot_tls_valid",
    "1 while the certificate files are valid and not expired; otherwise the server keeps the last valid ones, if any.",
    registry=REGISTRY,
)
TLS_EXPIRES = Gauge(
    "aliquot_tls_expires_timestamp_seconds",
    "Expiry of the server's certificate in seconds since 1970; 0 without TLS.",
    registry=REGISTRY,
)
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


class _Quotas(Collector):
    """One object for all limits. A Gauge would keep an object for each, which costs seconds for thousands of limits."""

    def __init__(self) -> None:
        self.lines: Sequence[tuple[Sequence[str], float, int]] = ()
        """(namespace, model, measure), the usage, and the limit."""

    def collect(self) -> Iterable[GaugeMetricFamily]:
        labels = ("namespace", "model", "measure")
        used = GaugeMetricFamily(
            "aliquot_quota_used",
            "What a namespace uses of a model, in the unit of its quota: cards, MiB or % of cores.",
            labels=labels,
        )
        limit = GaugeMetricFamily(
            "aliquot_quota_limit", "What a namespace may use of a model, in the unit of its quota.", labels=labels
        )
        for values, usage, allowed in self.lines:
            used.add_metric(values, usage)
            limit.add_metric(values, allowed)
        return used, limit


QUOTAS = _Quotas()
REGISTRY.register(QUOTAS)
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
