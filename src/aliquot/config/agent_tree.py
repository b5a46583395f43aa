"""The configuration of `aliquot agent`: every key, declared once. Variable, flag and documents follow."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from aliquot.config.declaration import Declaration
from aliquot.config.keys import Key, Section
from aliquot.config.sections.common import AgentKubernetesSection, LogSection, Prefixes
from aliquot.config.sections.value_types import Port
from aliquot.dialects.table import OURS

_UNITS = {"MiB": 1, "GiB": 1024}
_UNIX = "unix://"

Injection = Literal["auto", "cdi", "allocate"]

_NAMES = ", ".join(dialect.name for dialect in OURS)


class AgentConfig(Section, frozen=True):
    """The node"""

    kubernetes: AgentKubernetesSection = AgentKubernetesSection()
    node_name: Annotated[
        str,
        Meta(description="the name of a node"),
        Key("Name of this node.", other_variable="NODE_NAME", is_required=True, allows=bool),
    ] = ""
    dialects: Annotated[
        tuple[str, ...],
        Key(
            f"Dialect in which the agent offers the cards: {_NAMES}, or one of your own.",
            flag="--dialect",
            metavar="NAME",
            default="what the labels of the node name",
        ),
    ] = ()
    prefixes: Prefixes = field(default_factory=dict)
    memory_unit: Annotated[Literal["MiB", "GiB"], Key("Size of one unit of aliyun.com/gpu-mem on this node.")] = "GiB"
    device_plugins: Annotated[str, Key("Folder where kubelet looks for device plugins.", metavar="PATH")] = (
        "/var/lib/kubelet/device-plugins"
    )
    pod_resources: Annotated[str, Key("Socket of kubelet's PodResources API.", metavar="PATH")] = (
        "/var/lib/kubelet/pod-resources/kubelet.sock"
    )
    runtime_endpoint: Annotated[
        str,
        Meta(description="the absolute path of a socket, with unix:// before it or without"),
        Key(
            "Socket of the container runtime. The agent asks it whether it injects CDI devices.",
            allows=lambda endpoint: endpoint.removeprefix(_UNIX).startswith("/"),
        ),
    ] = "unix:///run/containerd/containerd.sock"
    cdi_folder: Annotated[str, Key("Folder where the container runtime reads CDI specs.", metavar="PATH")] = (
        "/var/run/cdi"
    )
    injection: Annotated[
        Injection,
        Key(
            "How containers get their devices: through CDI, or in the answer to Allocate, for runtimes without CDI. "
            "With auto the agent asks the container runtime."
        ),
    ] = "auto"
    dev_folder: Annotated[str, Key("Folder with the NVIDIA device nodes of this machine.", metavar="PATH")] = "/dev"
    driver_root: Annotated[
        str,
        Meta(description="auto, or an absolute path on the host"),
        Key(
            "Folder of the host with the NVIDIA driver's files. auto tries /, /run/nvidia/driver (GPU Operator) and "
            "/home/kubernetes/bin/nvidia (GKE).",
            metavar="PATH",
            allows=lambda path: path == "auto" or path.startswith("/"),
        ),
    ] = "auto"
    host_root: Annotated[
        str, Key("Folder where the agent sees the host's files: a mount in the agent's pod.", metavar="PATH")
    ] = "/"
    xids: Annotated[
        dict[str, Literal["ignore", "cordon", "drain"]],
        Meta(description="a mapping of XID codes to ignore, cordon or drain"),
        Key(
            "What follows from an XID error: ignore, cordon (no new pods) or drain (unhealthy), such as 63=cordon "
            "(docs/operate.md).",
            flag="--xid-verdict",
            metavar="CODE=VERDICT",
            default="NVIDIA's catalogue",
            allows=lambda verdicts: all(map(str.isdecimal, verdicts)),
        ),
    ] = field(default_factory=dict)
    health_port: Annotated[Port, Key("Port of the agent's /healthz, /readyz and /metrics; 0 turns it off.")] = 0
    exporters: Annotated[
        tuple[Literal["gpu-manager", "elastic-gpu-exporter", "hami", "dcgm"], ...],
        Meta(description="a list of gpu-manager, elastic-gpu-exporter, hami and dcgm"),
        Key(
            "Exporter whose metrics, with their own names, /metrics has beside ours (docs/metrics.md).",
            flag="--exporter",
            metavar="NAME",
            default="none",
        ),
    ] = ()
    log: LogSection = LogSection()

    @property
    def runtime_socket(self) -> Path | None:
        """The socket of the container runtime. None without one, as on a hollow node."""
        return Path(self.runtime_endpoint.removeprefix(_UNIX)) if self.runtime_endpoint else None

    @property
    def unit_mib(self) -> int:
        return _UNITS[self.memory_unit]


AGENT = Declaration(AgentConfig)
