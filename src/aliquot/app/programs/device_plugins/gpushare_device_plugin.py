"""`gpushare-device-plugin-v2`: its flags and variables, served by Aliquot's agent."""

from aliquot.app.programs import klog
from aliquot.app.programs.command_line import CommandLine, Flag, Parsed, idle_flag
from aliquot.app.programs.device_plugins.agent_program import AgentProgram, access
from aliquot.app.programs.starting import Translated
from aliquot.app.programs.values import BOOL, SIZE
from aliquot.config.declaration import Given

_NAME = "gpushare-device-plugin-v2"
_UNITS = ("MiB", "GiB")
_ABOUT = """
gpushare-device-plugin-v2, served by Aliquot: the device plugin for aliyun.com/gpu-mem and gpu-count on one node.

  NODE_NAME   name of this node (required)
  KUBECONFIG  path of the kubeconfig; if there is no such file, the pod's service account

This program is `aliquot agent` with only this dialect. You can set every key of the agent as an ALIQUOT_ variable
(docs/configuration.md). docs/programs.md lists the differences from the original.
"""
_NO_QUERIES = "the agent asks kubelet by its PodResources API and its checkpoint"
_FLAGS = (
    Flag("memory-unit", "Size of one unit of aliyun.com/gpu-mem: GiB or MiB. Other words mean GiB.", default="GiB"),
    idle_flag("health-check", "the agent always watches the health of the cards", BOOL),
    idle_flag("mps", "it has no effect in the original either", BOOL),
    idle_flag("query-kubelet", _NO_QUERIES, BOOL),
    idle_flag("kubelet-address", _NO_QUERIES, default="0.0.0.0"),
    idle_flag("kubelet-port", _NO_QUERIES, SIZE, "10250"),
    *(idle_flag(name, _NO_QUERIES) for name in ("client-cert", "client-key", "token")),
    idle_flag("timeout", _NO_QUERIES, SIZE, "10"),
    *klog.KLOG_FLAGS,
)


def _translate(parsed: Parsed) -> Translated:
    unit = parsed["memory-unit"]
    is_known = unit in _UNITS
    given = {**klog.given(parsed), **access("", "")}
    if "memory-unit" in parsed.written:
        given["memoryUnit"] = Given(unit if is_known else "GiB", "--memory-unit")
    remark = f"--memory-unit={unit}: the unit is GiB; valid units are {' and '.join(_UNITS)}"
    return Translated(given, klog.form(_NAME, parsed), () if is_known else (remark,))


PROGRAM = AgentProgram(CommandLine(_NAME, _ABOUT, _FLAGS), "gpushare", _translate)


def main() -> None:
    PROGRAM.main()


if __name__ == "__main__":
    main()
