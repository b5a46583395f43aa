"""`elastic-gpu-agent`: its flags and variables, served by Aliquot's agent."""

from aliquot.app.programs import klog
from aliquot.app.programs.command_line import CommandLine, Flag, Parsed, idle_flag
from aliquot.app.programs.device_plugins.agent_program import AgentProgram, access
from aliquot.app.programs.starting import Translated
from aliquot.config.declaration import Given
from aliquot.errors import BadConfig

_NAME = "elastic-gpu-agent"
_PLUGINS = ("gpushare", "qgpu", "pgpu")
_ABOUT = """
elastic-gpu-agent, served by Aliquot: the device plugins for elasticgpu.io/gpu-core, gpu-memory and
elastic-gpu/gpu-percent on one node.

  NODE_NAME   name of this node, if no flag names it
  KUBECONFIG  path of the kubeconfig; if there is no such file, the pod's service account

This program is `aliquot agent` with only this dialect. You can set every key of the agent as an ALIQUOT_ variable
(docs/configuration.md). docs/programs.md lists the differences from the original.
"""
_NO_DATABASE = "Aliquot keeps no database, and rebuilds from kubelet, CDI specs and pods"
_FLAGS = (
    Flag("nodeName", "Name of this node (default $NODE_NAME)."),
    Flag("nodename", "The same, as earlier versions spell it."),
    Flag("kubeconf", "Path of the kubeconfig (default $KUBECONFIG, the pod's service account)."),
    Flag("kubeconfig", "The same, as earlier versions spell it."),
    idle_flag("dbFile", _NO_DATABASE),
    idle_flag("dbfile", _NO_DATABASE),
    Flag("gpuPluginName", "gpushare; other plugins of the original do not exist or do nothing.", default="gpushare"),
    *klog.KLOG_FLAGS,
)


def _translate(parsed: Parsed) -> Translated:
    plugin = parsed["gpuPluginName"]
    if plugin not in _PLUGINS:
        raise BadConfig(f"-gpuPluginName {plugin}: unknown plugin; valid plugins are {', '.join(_PLUGINS)}")
    given = {**klog.given(parsed), **access("-kubeconf", parsed["kubeconf"] or parsed["kubeconfig"])}
    if node := parsed["nodeName"] or parsed["nodename"]:
        given["nodeName"] = Given(node, "-nodeName")
    remark = f"-gpuPluginName {plugin}: only {_PLUGINS[0]} has an effect"
    return Translated(given, klog.form(_NAME, parsed), () if plugin == _PLUGINS[0] else (remark,))


PROGRAM = AgentProgram(CommandLine(_NAME, _ABOUT, _FLAGS), "elastic", _translate)


def main() -> None:
    PROGRAM.main()


if __name__ == "__main__":
    main()
