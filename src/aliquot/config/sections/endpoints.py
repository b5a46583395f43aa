"""Keys about the endpoints that schedulers call, and about who may call them."""

from typing import Annotated, Literal

from msgspec import field

from aliquot.config.addresses import is_address
from aliquot.config.keys import Key, Section
from aliquot.config.sections.value_types import Address, Port

Answered = Literal["auto", "known", "anyone"]
_CALLERS = (
    "Who gets answers: `known` callers, or `anyone` who can reach the port. `auto` means `anyone` on a loopback "
    "address without listen.tls.clientCaFile, and `known` otherwise."
)


class AdmissionSection(Section, frozen=True):
    """Endpoints"""

    enabled: Annotated[bool, Key("Serve the routes of gpu-admission and Volcano.", flag="--admission-enabled")] = True
    port: Annotated[
        Port,
        Key(
            "Port of /scheduler/predicates, vpredicates, ... and /version; 0: any free port.",
            flag="--admission-port",
        ),
    ] = 3456
    callers: Annotated[Answered, Key(_CALLERS, flag="--admission-callers")] = "auto"
    debug_port: Annotated[
        Port,
        Key("Port of /debug/pprof/, if listen.profiling is true; 0: no such port.", flag="--admission-debug-port"),
    ] = 3457
    debug_address: Annotated[
        Address, Key("Address of /debug/pprof/.", flag="--admission-debug-address", allows=is_address)
    ] = "127.0.0.1"


class GpuShareSection(Section, frozen=True):
    """Endpoints"""

    enabled: Annotated[bool, Key("Serve the routes of gpushare's extender.", flag="--gpushare-enabled")] = True
    port: Annotated[
        Port,
        Key(
            "Port of /gpushare-scheduler/filter, prioritize, bind, inspect and /version; 0: any free port.",
            flag="--gpushare-port",
        ),
    ] = 12345
    callers: Annotated[Answered, Key(_CALLERS, flag="--gpushare-callers")] = "auto"


class ElasticSection(Section, frozen=True):
    """Endpoints"""

    enabled: Annotated[bool, Key("Serve the routes of elastic-gpu-scheduler.", flag="--elastic-enabled")] = True
    port: Annotated[
        Port,
        Key(
            "Port of /scheduler/filter, priorities, bind, status and /version; 0: any free port.",
            flag="--elastic-port",
        ),
    ] = 39999
    callers: Annotated[Answered, Key(_CALLERS, flag="--elastic-callers")] = "auto"


class NvidiaSection(Section, frozen=True):
    """Endpoints"""

    enabled: Annotated[bool, Key("Serve the routes of nvidia-gpu-scheduler.", flag="--nvidia-enabled")] = True
    port: Annotated[
        Port,
        Key(
            "Port of /apis/metrics.nvidia.com/v1alpha1/schedule/filter, prioritize and preempt; 0: any free port.",
            flag="--nvidia-port",
        ),
    ] = 8080
    callers: Annotated[
        Answered,
        Key(f"{_CALLERS} With queryApi.enabled, callers' rights in Kubernetes decide.", flag="--nvidia-callers"),
    ] = "auto"


class NativeSection(Section, frozen=True):
    """Endpoints"""

    enabled: Annotated[
        bool,
        Key(
            "Serve Aliquot's own routes. If disabled, every other endpoint serves /metrics.",
            flag="--native-enabled",
        ),
    ] = True
    port: Annotated[
        Port,
        Key(
            "Port of /aliquot/filter, prioritize, bind and preempt for every dialect, and of /metrics, /healthz and "
            "/readyz; 0: any free port.",
            flag="--native-port",
        ),
    ] = 12340
    callers: Annotated[Answered, Key(_CALLERS, flag="--native-callers")] = "auto"


class EndpointsSection(Section, frozen=True):
    """Endpoints"""

    admission: AdmissionSection = AdmissionSection()
    gpushare: GpuShareSection = GpuShareSection()
    elastic: ElasticSection = ElasticSection()
    nvidia: NvidiaSection = NvidiaSection()
    native: NativeSection = NativeSection()


ENDPOINTS = EndpointsSection.__struct_fields__
"""The names of all endpoints."""


class VolcanoSection(Section, frozen=True):
    """Endpoints"""

    answers: Annotated[
        Literal["auto", "1.7", "1.8", "1.10"],
        Key(
            "Format of answers to Volcano: `1.7` for versions up to 1.7, `1.8` for 1.8 and 1.9, `1.10` for 1.10 and "
            "later; `auto` detects the version."
        ),
    ] = "auto"


class CallersSection(Section, frozen=True):
    """Callers"""

    users: Annotated[
        dict[str, str],
        Key(
            "Kind of a user: scheduler, replica, reader or nobody. The user is the common name of a client "
            "certificate, or the user of a token.",
            flag="--caller",
            metavar="USER=KIND",
            default="system:kube-scheduler=scheduler, which always applies",
        ),
    ] = field(default_factory=dict)
    groups: Annotated[
        dict[str, str],
        Key(
            "Kind of a group. The group is an organization of a client certificate, or a group of a token.",
            flag="--caller-group",
            metavar="GROUP=KIND",
            default="system:masters=reader and kubeadm:cluster-admins=reader, which always apply",
        ),
    ] = field(default_factory=dict)
    audience: Annotated[
        str, Key("Audience that tokens must have.", flag="--caller-audience", default="the API server's audience")
    ] = ""
