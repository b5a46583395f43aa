"""`elastic-gpu-scheduler`: its flags and variables, served by Aliquot."""

import os

from aliquot.app.programs import klog
from aliquot.app.programs.addresses import EVERY, port_of
from aliquot.app.programs.command_line import CommandLine, Flag, Parsed
from aliquot.app.programs.priorities import OURS, policies, priority_flag
from aliquot.app.programs.program import Program
from aliquot.app.programs.starting import Translated
from aliquot.config.declaration import Given
from aliquot.errors import BadConfig

_NAME = "elastic-gpu-scheduler"
_PORT = 39999
_PRIORITIES = {"binpack": "elastic-binpack", "spread": "elastic-spread"}
_SHARED = "gpushare"
_MODES = ("pgpu", "qgpu", _SHARED)
_ABOUT = """
elastic-gpu-scheduler, served by Aliquot: a scheduler extender for elasticgpu.io/gpu-core, gpu-memory and
elastic-gpu/gpu-percent.

kube-scheduler calls POST /scheduler/filter, priorities and bind; people can read GET /scheduler/status. The same port
serves GET /version, /healthz, /readyz and /metrics, and /debug/pprof/ if ALIQUOT_PROFILING is true. Variables:

  PORT        port on all addresses of the machine (default 39999, also used if the value is not a number)
  THREADNESS  has no effect: Aliquot has no worker threads

This program is `aliquot server` with only this endpoint. You can set every key of the server as an ALIQUOT_ variable
(docs/configuration.md). docs/programs.md lists the differences from the original.
"""
_FLAGS = (
    priority_flag(
        "binpack leaves the cards as unequal as possible. spread takes the last card that fits, because "
        "the original never implemented spreading."
    ),
    Flag(
        "mode",
        "Comma-separated modes: pgpu, qgpu or gpushare. Only gpushare has an effect, as in the original. "
        "The default is gpushare, as in versions without this flag.",
    ),
    Flag("kubeconf", "Path of the kubeconfig (default $KUBECONFIG, the pod's service account, ~/.kube/config)."),
    *klog.KLOG_FLAGS,
)


def _translate(parsed: Parsed) -> Translated:
    given = {**klog.given(parsed), "endpoints.elastic.port": Given(port_of(os.environ.get("PORT", ""), _PORT), "$PORT")}
    if parsed["kubeconf"]:
        given["kubernetes.kubeconfig"] = Given(parsed["kubeconf"], "-kubeconf")
    remarks = (*_idle_modes(parsed["mode"]), *_idle_priority(parsed["priority"]))
    return Translated(given, klog.form(_NAME, parsed), remarks, policies(parsed, _PRIORITIES))


def _idle_priority(priority: str) -> tuple[str, ...]:
    return (
        (f"-priority spread: does not spread, as in the original; to spread, set {OURS}",)
        if priority == "spread"
        else ()
    )


def _idle_modes(text: str) -> tuple[str, ...]:
    """A remark for each mode without effect. Raises BadConfig without gpushare: the original then refuses every pod."""
    modes = [mode.strip() for mode in text.split(",") if mode.strip()]
    if unknown := [mode for mode in modes if mode not in _MODES]:
        raise BadConfig(f"-mode {text}: unknown mode {', '.join(unknown)}; valid modes are {', '.join(_MODES)}")
    if modes and _SHARED not in modes:
        raise BadConfig(f"-mode {text}: without {_SHARED}, the program would serve nothing and refuse every pod")
    return tuple(f"-mode {mode}: only {_SHARED} has an effect" for mode in modes if mode != _SHARED)


PROGRAM = Program(CommandLine(_NAME, _ABOUT, _FLAGS), "elastic", EVERY, _translate)


def main() -> None:
    PROGRAM.main()


if __name__ == "__main__":
    main()
