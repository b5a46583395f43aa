"""Every metric of the control plane, one object each; `/metrics` shows them all.

Whoever does a thing counts it here. What is a state and not a event (how many nodes, which role) is read from the
control plane when `/metrics` is asked, so that nobody has to keep it up to date.

A name, its kind and its help are the documentation: the table in docs/configuration.md is compared with this file.
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
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds. kube-scheduler waits 5 s for an extender by default, so nothing beyond matters."""

# -- the process

BUILD = Info("aliquot_build", "The version that runs.", registry=REGISTRY)
CONFIG_VALID = Gauge(
    "aliquot_config_valid",
    "1 while the configuration's source can be used, 0 while the last good one is kept.",
    registry=REGISTRY,
)
CONFIG_RELOADS = Counter(
    "aliquot_config_reloads", "Changes of the configuration that were seen.", ["outcome"], registry=REGISTRY
)
CONFIG_RESTART = Gauge("aliquot_config_restart_needed", "Keys whose new value waits for a restart.", registry=REGISTRY)

READY = Gauge(
    "aliquot_ready",
    "1 while this server can decide, or knows who does. An endpoint can be unready all the same: see its /readyz.",
    registry=REGISTRY,
)

LOOP_SILENCE = Gauge(
    "aliquot_loop_silence_seconds",
    "For how long the loop that decides has been busy with one thing; above half a second it is late for everybody.",
    registry=REGISTRY,
)

# -- replicas

ROLE = Gauge(
    "aliquot_role", "1 for what this server is: leading, following, alone or observing.", ["role"], registry=REGISTRY
)
EPOCH = Gauge(
    "aliquot_epoch", "The epoch that this server writes into what it commits; 0 without one.", registry=REGISTRY
)
TERMS = Counter(
    "aliquot_lease_terms", "How often this server began or ended to hold the Lease.", ["change"], registry=REGISTRY
)
FORWARDED = Counter(
    "aliquot_forwarded", "Calls passed on to the holder of the Lease.", ["verb", "outcome"], registry=REGISTRY
)

# -- following the cluster

MIRROR_OBJECTS = Gauge("aliquot_mirror_objects", "Objects of the cluster in memory.", ["kind"], registry=REGISTRY)
MIRROR_SYNCED = Gauge(
    "aliquot_mirror_synced", "1 while the copy is in step with the API server.", ["kind"], registry=REGISTRY
)
MIRROR_SILENCE = Gauge(
    "aliquot_mirror_silence_seconds",
    "Since when the API server has said nothing of a kind; its bookmarks come about once a minute.",
    ["kind"],
    registry=REGISTRY,
)
SILENT_AGENTS = Gauge(
    "aliquot_silent_agents", "Nodes whose agents have not renewed their Lease in time.", registry=REGISTRY
)
API_REQUESTS = Counter(
    "aliquot_api_requests",
    "Requests to the API server, by method and the code of the answer.",
    ["method", "code"],
    registry=REGISTRY,
)

# -- listening

CONNECTIONS = Gauge(
    "aliquot_connections", "Open connections of schedulers and others.", ["endpoint"], registry=REGISTRY
)
IN_FLIGHT = Gauge("aliquot_calls_in_flight", "Calls that are worked on.", ["endpoint"], registry=REGISTRY)
REJECTED = Counter(
    "aliquot_rejected_calls", "Calls and connections that a limit ended, by cause.", ["cause"], registry=REGISTRY
)
TLS_VALID = Gauge(
    "aliquot_tls_valid",
    "1 while the files of certificates can be used and are in their time; else the last good ones are kept, if any.",
    registry=REGISTRY,
)
TLS_EXPIRES = Gauge(
    "aliquot_tls_expires_timestamp_seconds",
    "When the certificate that is shown expires, in seconds since 1970; 0 without TLS.",
    registry=REGISTRY,
)
TLS_RELOADS = Counter(
    "aliquot_tls_reloads", "Changes of the files of certificates that were seen.", ["outcome"], registry=REGISTRY
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
    "Decisions about pods for which several GPU containers had to be searched a place, by outcome: found, "
    "fits_nowhere, given_up, or not begun since the pod or its namespace has searched too much (pod_waits, "
    "namespace_waits).",
    ["outcome"],
    registry=REGISTRY,
)
SEARCH_SECONDS = Counter(
    "aliquot_search_seconds", "Seconds of deciding that searches were charged with.", registry=REGISTRY
)
COMMITS = Counter(
    "aliquot_commits", "Placements that were to be written, by what became of them.", ["outcome"], registry=REGISTRY
)
COMMIT_SECONDS = Histogram("aliquot_commit_seconds", "How long a commit took.", buckets=_FAST, registry=REGISTRY)
OPEN_BINDINGS = Gauge(
    "aliquot_open_bindings",
    "Bindings without an answer, whose parts are kept until their fate is known.",
    registry=REGISTRY,
)
LATE = Counter(
    "aliquot_late_placements", "Pods placed after another scheduler bound them.", ["outcome"], registry=REGISTRY
)
WAKES = Counter(
    "aliquot_wakes",
    "Writes that make kube-scheduler ask again for a pod that was refused and fits now.",
    ["outcome"],
    registry=REGISTRY,
)
REFUSED_PODS = Gauge(
    "aliquot_refused_pods", "Pods that were refused and wait, as far as this server was asked.", registry=REGISTRY
)


class _Quotas(Collector):
    """One object for all limits: a Gauge would keep one for each, and cost seconds where there are thousands."""

    def __init__(self) -> None:
        self.lines: Sequence[tuple[Sequence[str], float, int]] = ()
        """(namespace, model, measure), what is used, and the limit."""

    def collect(self) -> Iterable[GaugeMetricFamily]:
        labels = ("namespace", "model", "measure")
        used = GaugeMetricFamily(
            "aliquot_quota_used",
            "What a namespace uses of a model, in the measure of its quota: cards, MiB or % of cores.",
            labels=labels,
        )
        limit = GaugeMetricFamily(
            "aliquot_quota_limit", "What a namespace may use of a model, in the measure of its quota.", labels=labels
        )
        for values, in_use, most in self.lines:
            used.add_metric(values, in_use)
            limit.add_metric(values, most)
        return used, limit


QUOTAS = _Quotas()
REGISTRY.register(QUOTAS)
QUOTA_HIDDEN = Gauge(
    "aliquot_quota_hidden_limits",
    "Limits of quotas that are not shown: 2,000 are, those of the namespaces that use most cards.",
    registry=REGISTRY,
)
QUOTA_VALID = Gauge(
    "aliquot_quota_valid",
    "1 while the quotas' ConfigMap can be used or is not there, 0 while the last good quotas are kept.",
    registry=REGISTRY,
)

# -- looking after the cluster state

AUDITS = Counter(
    "aliquot_audits", "Comparisons of the cluster state with the API server.", ["outcome"], registry=REGISTRY
)
DRIFT = Counter("aliquot_audit_drift", "Differences that an audit found and repaired.", ["kind"], registry=REGISTRY)
