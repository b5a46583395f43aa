"""`gpu-manager`: its flags, served by Aliquot's agent."""

import os
import socket

from aliquot.app.programs import klog
from aliquot.app.programs.command_line import CommandLine, Flag, Parsed, idle_flag
from aliquot.app.programs.device_plugins.agent_program import AgentProgram, access
from aliquot.app.programs.starting import Translated
from aliquot.app.programs.values import BOOL, DURATION, SIZE
from aliquot.config.declaration import Given
from aliquot.errors import BadConfig

_NAME = "gpu-manager"
_ABOUT = """
gpu-manager, served by Aliquot: the device plugins for tencent.com/vcuda-core and vcuda-memory on one node.

This program is `aliquot agent` with only this dialect. You can set every key of the agent as an ALIQUOT_ variable
(docs/configuration.md). docs/programs.md lists the differences from the original.
"""
_NO_LIMITS = "Aliquot does not limit memory or cores inside a card"
_NO_QUERIES = "the agent has no port"
_NO_CHECKPOINT = "the agent rebuilds from kubelet, CDI specs and pods"
_FLAGS = (
    Flag("driver", "Kind of the cards; nvidia is the only one.", default="nvidia"),
    Flag("kubeconfig", "Path of the kubeconfig (default $KUBECONFIG, the pod's service account, ~/.kube/config)."),
    Flag("incluster-mode", "Use the pod's service account even if there is a kubeconfig.", BOOL),
    Flag("hostname-override", "Name of this node (default $NODE_NAME, the host's name)."),
    Flag(
        "device-plugin-path",
        "Folder where kubelet looks for device plugins.",
        default="/var/lib/kubelet/device-plugins/",
    ),
    Flag("container-runtime-endpoint", "Socket of the container runtime (default containerd's)."),
    idle_flag("query-addr", _NO_QUERIES, default="localhost"),
    idle_flag("query-port", _NO_QUERIES, SIZE, "5678"),
    idle_flag("sample-period", _NO_LIMITS, SIZE, "1"),
    idle_flag("node-labels", "the agent labels its node with the model by itself"),
    idle_flag("virtual-manager-path", _NO_LIMITS, default="/etc/gpu-manager/vm"),
    idle_flag("checkpoint-path", _NO_CHECKPOINT, default="/etc/gpu-manager/checkpoint"),
    idle_flag("share-mode", "the agent always hands over parts of cards, too", BOOL),
    idle_flag("allocation-check-period", "the agent refuses a wrong pod before it starts", SIZE, "30"),
    idle_flag("cgroup-driver", _NO_LIMITS, default="cgroupfs"),
    idle_flag("runtime-request-timeout", "the agent has limits of its own", DURATION, "5s"),
    idle_flag("wait-timeout", "the agent waits for kubelet for as long as it takes", DURATION, "1m"),
    idle_flag(
        "docker-endpoint", "the agent asks the container runtime over CRI", default="unix:////var/run/docker.sock"
    ),
    idle_flag("extra-config", "containers get no further devices"),
    idle_flag("volume-config", "the driver's files come from the driver root or NVIDIA's toolkit"),
    *klog.KLOG_FLAGS,
)
_KEYS = {"device-plugin-path": "devicePlugins", "container-runtime-endpoint": "runtimeEndpoint"}


def _translate(parsed: Parsed) -> Translated:
    if parsed["driver"] != "nvidia":
        raise BadConfig(f"--driver {parsed['driver']}: Aliquot serves NVIDIA's cards only")
    given = {**klog.given(parsed), **access("--kubeconfig", parsed["kubeconfig"])}
    if "incluster-mode" in parsed.written:
        given["kubernetes.asPod"] = Given(parsed["incluster-mode"], "--incluster-mode")
    node = parsed["hostname-override"] or os.environ.get("NODE_NAME") or socket.gethostname().lower()
    given["nodeName"] = Given(node, "--hostname-override")
    for flag, key in _KEYS.items():
        if flag in parsed.written:
            given[key] = Given(parsed[flag], f"--{flag}")
    return Translated(given, klog.form(_NAME, parsed))


PROGRAM = AgentProgram(CommandLine(_NAME, _ABOUT, _FLAGS, gnu=True), "tencent", _translate)


def main() -> None:
    PROGRAM.main()


if __name__ == "__main__":
    main()
