"""The configuration of `aliquot server`: the one declaration of every key."""

from typing import Annotated, Literal

from msgspec import Meta, field

from aliquot.config.addresses import is_address
from aliquot.config.keys import Key, Section, settings_of

Seconds = Annotated[float, Meta(gt=0, le=86400)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Name = Annotated[
    str, Meta(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253, description="a name of a Kubernetes object")
]
Address = Annotated[str, Meta(description="an IP address or a host name")]


class Log(Section, frozen=True):
    """Logs"""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Key("The least important lines that are written.", live=True)
    ] = "info"


class Kubernetes(Section, frozen=True):
    """The API server"""

    kubeconfig: Annotated[
        str,
        Key(
            "How to reach the API server.",
            flag="--kubeconfig",
            default="$KUBECONFIG, the pod's service account, ~/.kube/config",
        ),
    ] = ""
    context: Annotated[str, Key("The kubeconfig's context.", flag="--context", default="its current one")] = ""
    server: Annotated[
        str,
        Key("Another address of the API server than the kubeconfig's.", flag="--master", default="the kubeconfig's"),
    ] = ""
    as_pod: Annotated[bool, Key("Use the pod's service account, whatever kubeconfig there is.", flag="--as-pod")] = (
        False
    )


class ListenLimits(Section, frozen=True):
    """Listening"""

    body_mb: Annotated[
        int,
        Meta(ge=1, le=4096),
        Key("Megabytes of a call's body; 5,000 whole nodes are about 63.", flag="--limit-body-mb"),
    ] = 128
    bodies_mb: Annotated[
        int,
        Meta(ge=1, le=65536),
        Key(
            "Megabytes of all bodies that are worked on, and answers that are sent, at once on each port.",
            flag="--limit-bodies-mb",
        ),
    ] = 256
    seconds: Annotated[
        Seconds,
        Key(
            "Seconds for a call, from its first line to the answer; keep it below the scheduler's own time-out.",
            flag="--limit-seconds",
        ),
    ] = 4.5
    concurrency: Annotated[
        int,
        Meta(ge=1, le=65536),
        Key("Calls at once on each port; /healthz and /readyz are answered beyond it.", flag="--limit-concurrency"),
    ] = 512
    connections: Annotated[
        int,
        Meta(ge=1, le=65536),
        Key(
            "Connections at once to each port; beyond it, the one that is silent longest ends.",
            flag="--limit-connections",
        ),
    ] = 1024


class ListenTls(Section, frozen=True):
    """Listening"""

    cert_file: Annotated[
        str,
        Key(
            "The certificate, with its chain, for TLS on every port; changed files are taken within a second or two.",
            flag="--tls-cert-file",
            default="no TLS",
        ),
    ] = ""
    key_file: Annotated[str, Key("The certificate's key.", flag="--tls-key-file")] = ""
    client_ca_file: Annotated[
        str,
        Key(
            "The authorities that sign clients' certificates; the subject tells a caller's kind (docs/callers.md).",
            flag="--tls-client-ca-file",
            default="callers are known by token only",
        ),
    ] = ""
    min_version: Annotated[
        Literal["VersionTLS12", "VersionTLS13"], Key("The least version of TLS.", flag="--tls-min-version")
    ] = "VersionTLS12"


class Listen(Section, frozen=True):
    """Listening"""

    address: Annotated[
        Address,
        Key(
            "The address to listen on; elsewhere than on loopback, only known callers are answered (docs/callers.md).",
            flag="--address",
            allows=is_address,
        ),
    ] = "127.0.0.1"
    profiling: Annotated[
        bool,
        Key(
            "Serve /debug/pprof/: on the ports of gpushare and elastic, and on endpoints.admission.debugPort.",
            flag="--profiling",
        ),
    ] = False
    health_port: Annotated[
        Port,
        Key(
            "The port of /healthz, /readyz and /metrics on a thread of their own, which answers while a decision is "
            "made; 0 opens none.",
            flag="--health-port",
        ),
    ] = 12341
    grace: Annotated[Seconds, Key("How long calls in flight may take to end when the server is told to stop.")] = 5.0
    limits: ListenLimits = ListenLimits()
    tls: ListenTls = ListenTls()


Answered = Literal["auto", "known", "anyone"]
_WHO = (
    "Who is answered: `known` callers, or `anyone` who reaches the port; `auto` means anyone on a loopback address "
    "without listen.tls.clientCaFile, else known."
)


class AdmissionEndpoint(Section, frozen=True):
    """Endpoints"""

    enabled: Annotated[bool, Key("Serve gpu-admission's routes, and Volcano's.", flag="--admission-enabled")] = True
    port: Annotated[
        Port,
        Key(
            "The port of /scheduler/predicates, vpredicates, ... and /version; 0 takes a free one.",
            flag="--admission-port",
        ),
    ] = 3456
    callers: Annotated[Answered, Key(_WHO, flag="--admission-callers")] = "auto"
    debug_port: Annotated[
        Port,
        Key("The port of /debug/pprof/, if listen.profiling is true; 0 opens none.", flag="--admission-debug-port"),
    ] = 3457
    debug_address: Annotated[
        Address,
        Key("The address to listen on for /debug/pprof/.", flag="--admission-debug-address", allows=is_address),
    ] = "127.0.0.1"


class GpuShareEndpoint(Section, frozen=True):
    """Endpoints"""

    enabled: Annotated[bool, Key("Serve gpushare's extender routes.", flag="--gpushare-enabled")] = True
    port: Annotated[
        Port,
        Key(
            "The port of gpushare's routes: /gpushare-scheduler/filter, bind, inspect, /version; 0 takes a free one.",
            flag="--gpushare-port",
        ),
    ] = 12345
    callers: Annotated[Answered, Key(_WHO, flag="--gpushare-callers")] = "auto"


class ElasticEndpoint(Section, frozen=True):
    """Endpoints"""

    enabled: Annotated[bool, Key("Serve elastic-gpu-scheduler's routes.", flag="--elastic-enabled")] = True
    port: Annotated[
        Port,
        Key(
            "The port of /scheduler/filter, priorities, bind, status and /version; 0 takes a free one.",
            flag="--elastic-port",
        ),
    ] = 39999
    callers: Annotated[Answered, Key(_WHO, flag="--elastic-callers")] = "auto"


class NvidiaEndpoint(Section, frozen=True):
    """Endpoints"""

    enabled: Annotated[bool, Key("Serve nvidia-gpu-scheduler's routes.", flag="--nvidia-enabled")] = True
    port: Annotated[
        Port,
        Key(
            "The port of /apis/metrics.nvidia.com/v1alpha1/schedule/filter, prioritize, preempt; 0 takes a free one.",
            flag="--nvidia-port",
        ),
    ] = 8080
    callers: Annotated[Answered, Key(_WHO, flag="--nvidia-callers")] = "auto"


class NativeEndpoint(Section, frozen=True):
    """Endpoints"""

    enabled: Annotated[
        bool,
        Key(
            "Serve our own routes; without, /metrics is on the port of every other endpoint.",
            flag="--native-enabled",
        ),
    ] = True
    port: Annotated[
        Port,
        Key(
            "The port of /aliquot/filter, prioritize, bind, preempt for every dialect, of /metrics, /healthz and "
            "/readyz; 0 takes a free one.",
            flag="--native-port",
        ),
    ] = 12340
    callers: Annotated[Answered, Key(_WHO, flag="--native-callers")] = "auto"


class Endpoints(Section, frozen=True):
    """Endpoints"""

    admission: AdmissionEndpoint = AdmissionEndpoint()
    gpushare: GpuShareEndpoint = GpuShareEndpoint()
    elastic: ElasticEndpoint = ElasticEndpoint()
    nvidia: NvidiaEndpoint = NvidiaEndpoint()
    native: NativeEndpoint = NativeEndpoint()


class Volcano(Section, frozen=True):
    """Endpoints"""

    answers: Annotated[
        Literal["auto", "1.7", "1.8", "1.10"],
        Key("The Volcano whose form answers have: up to 1.7, 1.8 and 1.9, from 1.10 on; `auto` recognises the caller."),
    ] = "auto"


class Callers(Section, frozen=True):
    """Callers"""

    users: Annotated[
        dict[str, str],
        Key(
            "The kind of a user, by a certificate's common name or a token: scheduler, replica, reader or nobody.",
            flag="--caller",
            pair="USER=KIND",
            default="system:kube-scheduler=scheduler, which is added to what is given",
        ),
    ] = field(default_factory=dict)
    groups: Annotated[
        dict[str, str],
        Key(
            "The kind of a group, by a certificate's organization or a token.",
            flag="--caller-group",
            pair="GROUP=KIND",
            default="system:masters=reader and kubeadm:cluster-admins=reader, which are added to what is given",
        ),
    ] = field(default_factory=dict)
    audience: Annotated[
        str, Key("The audience that a token must be for.", flag="--caller-audience", default="the API server's own")
    ] = ""


ENDPOINTS = Endpoints.__struct_fields__
"""The names of all endpoints."""


class Policies(Section, frozen=True):
    """Policies"""

    gpu: Annotated[
        dict[str, str],
        Key(
            "Which card a dialect's pods get on a node, unless they say: binpack, spread, ... (docs/policies.md).",
            live=True,
            flag="--gpu-policy",
            pair="DIALECT=POLICY",
        ),
    ] = field(default_factory=dict)
    node: Annotated[
        dict[str, str],
        Key(
            "Which node a dialect's pods get, unless they say.",
            live=True,
            flag="--node-policy",
            pair="DIALECT=POLICY",
        ),
    ] = field(default_factory=dict)


class Quota(Section, frozen=True):
    """Quotas"""

    namespace: Annotated[Name, Key("Where the ConfigMap with the quotas is (docs/quota.md).")] = "kube-system"
    name: Annotated[Name, Key("The ConfigMap with the quotas; without it there are none.")] = "gpuquota"
    key: Annotated[
        str,
        Meta(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253, description="a key of a ConfigMap"),
        Key("The key of that ConfigMap under which the quotas stand."),
    ] = "gpu_quota"
    model_label: Annotated[
        str, Key("The node label that names a node's GPU model.", default="those of gpu-admission's versions")
    ] = ""
    pool_label: Annotated[
        str, Key("The node label that names a node's pool.", default="those of gpu-admission's versions")
    ] = ""


class Lease(Section, frozen=True):
    """Replicas"""

    enabled: Annotated[
        bool, Key("Share the work with other servers by a Lease; without, this must be the only server.")
    ] = True
    namespace: Annotated[Name, Key("Where the servers' Lease and their epoch are.")] = "aliquot-system"
    name: Annotated[Name, Key("The Lease of which one server is the holder; it alone commits.")] = "aliquot-server"
    duration: Annotated[int, Meta(ge=1, le=86400), Key("Seconds for which others wait for a silent holder.")] = 15
    renew: Annotated[Seconds, Key("Seconds for which a holder believes in itself without a renewal.")] = 10.0
    retry: Annotated[Seconds, Key("Seconds between two tries to get or to renew it.")] = 2.0


class Replicas(Section, frozen=True):
    """Replicas"""

    address: Annotated[
        Address,
        Key(
            "The address at which the other replicas reach this one.",
            default="$POD_IP, else listen.address",
            allows=lambda text: not text or is_address(text),
        ),
    ] = ""
    ca_file: Annotated[
        str,
        Key(
            "With TLS, the authorities that sign the other replicas' certificates.",
            default="listen.tls.clientCaFile, else those of the system",
        ),
    ] = ""
    token_file: Annotated[
        str,
        Key(
            "With TLS, a file with a service account token that this server shows to other replicas in place of its "
            "certificate; it is read again for every call.",
            default="the certificate",
        ),
    ] = ""
    tls_name: Annotated[
        Address,
        Key(
            "With TLS, the name that the other replicas' certificates must have; whoever shows it is a replica.",
            default="the address at which they are reached",
            allows=lambda text: not text or is_address(text),
        ),
    ] = ""


class Commit(Section, frozen=True):
    """Committing"""

    budget: Annotated[
        Seconds,
        Key("Seconds for a Binding; with commit.look it must stay below the scheduler's own time-out.", live=True),
    ] = 2.5
    look: Annotated[Seconds, Key("Seconds for a read before or after a Binding.", live=True)] = 1.0
    act_limit: Annotated[
        Seconds,
        Key(
            "Seconds in which the API server may still act on a request: its own request time-out and some.", live=True
        ),
    ] = 70.0
    claims_per_namespace: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        Key("Pods of a namespace for which cards may be kept or claimed at once while they are not bound.", live=True),
    ] = 500


class Search(Section, frozen=True):
    """Deciding"""

    seconds: Annotated[
        float,
        Meta(ge=0.01, le=4),
        Key(
            "Seconds for which one decision may search for a place for a pod with several GPU containers, over all "
            "nodes; nobody else is answered meanwhile.",
            live=True,
        ),
    ] = 1.0


class Audit(Section, frozen=True):
    """Looking after the cluster state"""

    seconds: Annotated[
        Seconds, Key("Seconds between two comparisons of the cluster state with the API server.", live=True)
    ] = 60.0


class Late(Section, frozen=True):
    """Looking after the cluster state"""

    seconds: Annotated[
        Seconds,
        Key("Seconds for which a pod that another scheduler bound may wait for room before it is failed.", live=True),
    ] = 30.0
    hold: Annotated[
        Seconds,
        Key(
            "Seconds for which a part is kept for a pod that the scheduler binds itself (filter, vallocate).",
            live=True,
        ),
    ] = 30.0


class DecisionLog(Section, frozen=True):
    """Looking after the cluster state"""

    file: Annotated[
        str, Key("Where each decision is written, to be replayed (docs/decisions.md).", default="nowhere")
    ] = ""
    mb: Annotated[
        int, Meta(ge=1, le=65536), Key("The size at which the decision log's file is changed for a new one.")
    ] = 64


class Configuration(Section, frozen=True):
    """What it does"""

    mode: Annotated[
        Literal["active", "observe"],
        Key("`active` places pods; `observe` only reads, and logs where it would have placed them."),
    ] = "active"
    log: Log = Log()
    kubernetes: Kubernetes = Kubernetes()
    listen: Listen = Listen()
    endpoints: Endpoints = Endpoints()
    volcano: Volcano = Volcano()
    callers: Callers = field(default_factory=Callers)
    schedulers: Annotated[
        str,
        Key(
            "Whose pods are bound and have cards kept for them: values of schedulerName with commas between, or `*`.",
            live=True,
        ),
    ] = "default-scheduler,gpu-scheduler,hami-scheduler,volcano"
    prefixes: Annotated[
        dict[str, str],
        Key("Another prefix for a dialect's names.", flag="--prefix", pair="DIALECT=PREFIX"),
    ] = field(default_factory=dict)
    compat: Annotated[
        dict[str, str],
        Key(
            "What an endpoint does exactly as its original: maps, bind-faults, reasons, or all (docs/endpoints.md).",
            flag="--compat",
            pair="ENDPOINT=QUIRKS",
        ),
    ] = field(default_factory=dict)
    policies: Policies = field(default_factory=Policies)
    quota: Quota = Quota()
    lease: Lease = Lease()
    replicas: Replicas = Replicas()
    search: Search = Search()
    commit: Commit = Commit()
    audit: Audit = Audit()
    late: Late = Late()
    decision_log: DecisionLog = DecisionLog()


SETTINGS = {setting.path: setting for setting in settings_of(Configuration)}
"""Every key, by its path."""
