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


class Listen(Section, frozen=True):
    """Listening"""

    address: Annotated[
        Address,
        Key("The address to listen on; its routes have no authentication.", flag="--address", allows=is_address),
    ] = "127.0.0.1"
    grace: Annotated[Seconds, Key("How long calls in flight may take to end when the server is told to stop.")] = 5.0


class GpuShareDoor(Section, frozen=True):
    """Doors"""

    enabled: Annotated[bool, Key("Serve gpushare's extender routes.", flag="--gpushare-enabled")] = True
    port: Annotated[
        Port,
        Key(
            "The port of gpushare's routes: /gpushare-scheduler/filter, bind, inspect, /version; 0 takes a free one.",
            flag="--gpushare-port",
        ),
    ] = 12345


class NativeDoor(Section, frozen=True):
    """Doors"""

    port: Annotated[
        Port, Key("The port of /metrics, /healthz and /readyz; 0 takes a free one.", flag="--native-port")
    ] = 9400


class Doors(Section, frozen=True):
    """Doors"""

    gpushare: GpuShareDoor = GpuShareDoor()
    native: NativeDoor = NativeDoor()


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


class Audit(Section, frozen=True):
    """Looking after the books"""

    seconds: Annotated[Seconds, Key("Seconds between two comparisons of the books with the API server.", live=True)] = (
        60.0
    )


class Late(Section, frozen=True):
    """Looking after the books"""

    seconds: Annotated[
        Seconds,
        Key("Seconds for which a pod that another scheduler bound may wait for room before it is failed.", live=True),
    ] = 30.0


class DecisionLog(Section, frozen=True):
    """Looking after the books"""

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
    doors: Doors = Doors()
    prefixes: Annotated[
        dict[str, str],
        Key("Another prefix for a dialect's names.", flag="--prefix", pair="DIALECT=PREFIX"),
    ] = field(default_factory=dict)
    policies: Policies = field(default_factory=Policies)
    lease: Lease = Lease()
    replicas: Replicas = Replicas()
    commit: Commit = Commit()
    audit: Audit = Audit()
    late: Late = Late()
    decision_log: DecisionLog = DecisionLog()


SETTINGS = {setting.path: setting for setting in settings_of(Configuration)}
"""Every key, by its path."""
