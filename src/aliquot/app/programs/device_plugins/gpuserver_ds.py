"""`gpuserver-ds` of nvidia-gpu-scheduler: its flags and variables, served by Aliquot's agent."""

import os

from aliquot.app.programs import klog
from aliquot.app.programs.command_line import CommandLine, Flag, Parsed, idle_flag
from aliquot.app.programs.device_plugins.agent_program import AgentProgram, access
from aliquot.app.programs.starting import Translated
from aliquot.app.programs.values import DURATION
from aliquot.config.agent_tree import AgentConfig
from aliquot.config.declaration import Given
from aliquot.dialects.node_reading import SERVES
from aliquot.errors import BadConfig
from aliquot.kube import NODES, Client, KubeError
from aliquot.model.records import OBSERVED

_NAME = "gpuserver-ds"
_SOCKET = "unix:///var/lib/kubelet/pod-resources/kubelet.sock"
_ABOUT = """
gpuserver-ds, served by Aliquot: reports the cards of one node, and which pod has which, where NVIDIA's device plugin
hands them out. It labels its node aliquot.io/observed=true, unless a label of the node says which dialects to serve.

  NODENAME  name of this node

This program is `aliquot agent`. You can set every key of the agent as an ALIQUOT_ variable (docs/configuration.md).
docs/programs.md lists the differences from the original.
"""
_FLAGS = (
    Flag("localPodResourcesEndpoint", "Socket of kubelet's PodResources API.", default=_SOCKET),
    idle_flag("interval-wait-service", "the agent needs no Service of the server", DURATION, "5s"),
    *klog.KLOG_FLAGS,
)


def _translate(parsed: Parsed) -> Translated:
    given = {**klog.given(parsed), **access("", "")}
    if node := os.environ.get("NODENAME"):
        given["nodeName"] = Given(node, "$NODENAME")
    if flag := parsed.written.get("localPodResourcesEndpoint"):
        given["podResources"] = Given(parsed["localPodResourcesEndpoint"].removeprefix("unix://"), flag)
    return Translated(given, klog.form(_NAME, parsed))


async def observe_own_node(config: AgentConfig) -> None:
    """Label the node as one whose cards another plugin hands out, unless a label of ours says something else. Raises
    BadConfig: without a label, the original's `nodeinfo=gpu` would make the agent take the place of that plugin."""
    async with Client(config.kubernetes.access()) as client:
        try:
            labels = (await client.get(NODES, config.node_name)).metadata.labels
            if OBSERVED not in labels and not any(key.startswith(SERVES) for key in labels):
                await client.patch(NODES, config.node_name, {"metadata": {"labels": {OBSERVED: "true"}}})
        except KubeError as error:
            label = f"kubectl label node {config.node_name} {OBSERVED}=true"
            raise BadConfig(f"this program cannot label its node, so run `{label}`: {error}") from error


PROGRAM = AgentProgram(CommandLine(_NAME, _ABOUT, _FLAGS, gnu=True), "", _translate, observe_own_node)


def main() -> None:
    PROGRAM.main()


if __name__ == "__main__":
    main()
