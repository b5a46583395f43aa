"""`gpushare-device-plugin-v2`: its flags and variables, served by Aliquot's agent."""

from aliquot.app.programs import klog
from aliquot.app.programs.command_line import CommandLine, Flag, Parsed
from aliquot.app.programs.device_plugins.agent_program import AgentProgram, access
from aliquot.app.programs.starting import Translated
from aliquot.app.programs.values import BOOL, SIZE, TEXT, ValueKind
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
_IDLE: dict[str, tuple[str, ValueKind, str]] = {
    "health-check": ("the agent always watches the health of the cards", BOOL, ""),
    "mps": ("it has no effect in the original either", BOOL, ""),
    "query-kubelet": (_NO_QUERIES, BOOL, ""),
    "kubelet-address": (_NO_QUERIES, TEXT, "0.0.0.0"),
    "kubelet-port": (_NO_QUERIES, SIZE, "10250"),
    "client-cert": (_NO_QUERIES, TEXT, ""),
    "client-key": (_NO_QUERIES, TEXT, ""),
    "token": (_NO_QUERIES, TEXT, ""),
    "timeout": (_NO_QUERIES, SIZE, "10"),
}
"""Flags without effect: the reason, the kind of value and the original's default."""
_FLAGS = (
    Flag("memory-unit", "Size of one unit of aliyun.com/gpu-mem: GiB or MiB. Other words mean GiB.", default="GiB"),
    *(Flag(name, f"Has no effect: {why}.", kind, default) for name, (why, kind, default) in _IDLE.items()),
    *klog.KLOG_FLAGS,
)


def _translate(parsed: Parsed) -> Translated:
    unit = parsed["memory-unit"]
    is_known = unit in _UNITS
    given = {**klog.given(parsed), **access("", "")}
    if "memory-unit" in parsed.written:
        given["memoryUnit"] = Given(unit if is_known else "GiB", "--memory-unit")
    remarks = [f"{parsed.written[name]}: {why}" for name, (why, *_) in _IDLE.items() if name in parsed.written]
    if not is_known:
        remarks.append(f"--memory-unit={unit}: the unit is GiB; valid units are {' and '.join(_UNITS)}")
    return Translated(given, klog.form(_NAME, parsed), tuple(remarks))


PROGRAM = AgentProgram(CommandLine(_NAME, _ABOUT, _FLAGS), "gpushare", _translate)


def main() -> None:
    PROGRAM.main()


if __name__ == "__main__":
    main()
