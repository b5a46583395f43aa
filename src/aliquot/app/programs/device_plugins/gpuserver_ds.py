"""`gpuserver-ds` of nvidia-gpu-scheduler: its flags and variables, served by Aliquot's agent."""

import os

from aliquot.app.programs import klog
from aliquot.app.programs.command_line import CommandLine, Flag, Parsed, idle_flag
from aliquot.app.programs.device_plugins.agent_program import AgentProgram, access
from aliquot.app.programs.starting import Translated
from aliquot.app.programs.values import DURATION
from aliquot.config.declaration import Given

_NAME = "gpuserver-ds"
_SOCKET = "unix:///var/lib/kubelet/pod-resources/kubelet.sock"
_ABOUT = """
gpuserver-ds, served by Aliquot: reports the cards of one node, and which pod has which, where NVIDIA's device plugin
hands them out. Label such nodes aliquot.io/observed=true.

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


PROGRAM = AgentProgram(CommandLine(_NAME, _ABOUT, _FLAGS, gnu=True), "", _translate)


def main() -> None:
    PROGRAM.main()


if __name__ == "__main__":
    main()
