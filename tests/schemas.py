"""The fields of kube-scheduler's and Volcano's configurations, strictly: an unknown one is an error, as it is there.

For versions that no test can start. `kubescheduler.config.k8s.io` had v1beta2 in Kubernetes 1.22 to 1.27 and v1beta3 in
1.23 to 1.28; the Policy was gone in 1.23. Both know more fields than these: a configuration of ours that needs another
one has to be looked up first.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

Url = Annotated[str, Meta(pattern=r"^https?://[^/ ]+(/[^ ]*)?[^/ ]$")]
Verb = Annotated[str, Meta(pattern=r"^[a-z]+$")]
ResourceName = Annotated[str, Meta(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$")]
Duration = Annotated[str, Meta(pattern=r"^([0-9.]+(ms|s|m|h))+$")]


class _Strict(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    pass


class ManagedResource(_Strict):
    name: ResourceName
    ignored_by_scheduler: bool = False


class Tls(_Strict):
    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""


class _Extender(_Strict):
    url_prefix: Url
    filter_verb: Verb = ""
    prioritize_verb: Verb = ""
    preempt_verb: Verb = ""
    bind_verb: Verb = ""
    weight: Annotated[int, Meta(ge=1)] | None = None
    tls_config: Tls | None = None
    node_cache_capable: bool = False
    ignorable: bool = False
    managed_resources: list[ManagedResource] = []

    def __post_init__(self) -> None:
        if self.prioritize_verb and self.weight is None:
            raise ValueError("an extender with a prioritizeVerb needs a weight")


class Extender(_Extender):
    """As KubeSchedulerConfiguration has it, in all of its versions."""

    enable_https: bool = msgspec.field(name="enableHTTPS", default=False)
    http_timeout: Duration | None = None


class PolicyExtender(_Extender):
    """As the Policy had it: another spelling, and a time in nanoseconds."""

    enable_https: bool = msgspec.field(name="enableHttps", default=False)
    http_timeout: int | None = None


class ClientConnection(_Strict):
    kubeconfig: str = ""
    qps: float | None = None
    burst: int | None = None


class LeaderElection(_Strict):
    leader_elect: bool = True


class Profile(_Strict):
    scheduler_name: str


class KubeSchedulerConfiguration(_Strict):
    api_version: Literal[
        "kubescheduler.config.k8s.io/v1beta2", "kubescheduler.config.k8s.io/v1beta3", "kubescheduler.config.k8s.io/v1"
    ]
    kind: Literal["KubeSchedulerConfiguration"]
    client_connection: ClientConnection | None = None
    leader_election: LeaderElection | None = None
    percentage_of_nodes_to_score: Annotated[int, Meta(ge=0, le=100)] | None = None
    pod_initial_backoff_seconds: int | None = None
    pod_max_backoff_seconds: int | None = None
    profiles: list[Profile] = []
    extenders: list[Extender] = []

    def __post_init__(self) -> None:
        _check_together(self.extenders)


class Policy(_Strict):
    api_version: Literal["v1"]
    kind: Literal["Policy"]
    extenders: list[PolicyExtender]

    def __post_init__(self) -> None:
        _check_together(self.extenders)


class VolcanoArguments(Struct, forbid_unknown_fields=True, kw_only=True):
    """Of the plugin `extender`. A time that is no string counts as a second, a quoted bool as false."""

    url_prefix: Url = msgspec.field(name="extender.urlPrefix")
    http_timeout: Duration = msgspec.field(name="extender.httpTimeout")
    predicate: Verb = msgspec.field(name="extender.predicateVerb")
    prioritize: Verb = msgspec.field(name="extender.prioritizeVerb")
    allocate: Verb = msgspec.field(name="extender.allocateFuncVerb")
    deallocate: Verb = msgspec.field(name="extender.deallocateFuncVerb")
    ignorable: bool = msgspec.field(name="extender.ignorable")
    managed_resources: list[ResourceName] = msgspec.field(name="extender.managedResources")


class VolcanoPlugin(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    name: str
    enable_preemptable: bool | None = None
    arguments: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.name == "extender":
            msgspec.convert(self.arguments, VolcanoArguments)


class VolcanoTier(Struct, forbid_unknown_fields=True):
    plugins: list[VolcanoPlugin]


class VolcanoConfiguration(Struct, forbid_unknown_fields=True):
    actions: str
    tiers: list[VolcanoTier]


def _check_together(extenders: list[Any]) -> None:
    """What kube-scheduler refuses of several extenders."""
    if sum(bool(extender.bind_verb) for extender in extenders) > 1:
        raise ValueError("only one extender may bind")
    names = [resource.name for extender in extenders for resource in extender.managed_resources]
    if len(set(names)) < len(names):
        raise ValueError("a resource is managed twice")
