"""`elastic-gpu-scheduler`: its flags and variables, and Aliquot behind its routes."""

import os

from aliquot.app.programs import klog
from aliquot.app.programs.addresses import EVERY, port_of
from aliquot.app.programs.command_line import CommandLine, Flag, Parsed
from aliquot.app.programs.klog_flags import KLOG_FLAGS
from aliquot.app.programs.priorities import OURS, policies, priority_flag
from aliquot.app.programs.starting import Program, Wanted
from aliquot.config import Given
from aliquot.errors import BadConfig

_NAME = "elastic-gpu-scheduler"
_PORT = 39999
_PRIORITIES = {"binpack": "elastic-binpack", "spread": "elastic-spread"}
_SHARED = "gpushare"
_MODES = ("pgpu", "qgpu", _SHARED)
_ABOUT = """
elastic-gpu-scheduler, answered by Aliquot: a scheduler extender for elasticgpu.io/gpu-core, gpu-memory and
elastic-gpu/gpu-percent.

POST /scheduler/filter, priorities and bind are for kube-scheduler, GET /scheduler/status for people; GET /version,
/healthz, /readyz and /metrics are on the same port, and /debug/pprof/ if ALIQUOT_PROFILING is true. Its variables:

  PORT        the port, on every address of the machine (default 39999, also for what is no number)
  THREADNESS  has no effect: what the original spreads over so many workers is done here as it is heard of

It is `aliquot server` with this one endpoint: every key of that can be given as an ALIQUOT_ variable
(docs/configuration.md). docs/programs.md says what differs from the original.
"""
_FLAGS = (
    priority_flag(
        "binpack takes the way that leaves the cards most unequal; spread, which the original never wrote, takes the "
        "last card that fits."
    ),
    Flag(
        "mode",
        "What is shared, out of pgpu, qgpu and gpushare, with commas between. Only gpushare has a meaning, here as in "
        "the original; without any it is meant, as in versions that had no such flag.",
    ),
    Flag("kubeconf", "The path of a kubeconfig. Without: $KUBECONFIG, the pod's service account, ~/.kube/config."),
    *KLOG_FLAGS,
)


def _understand(parsed: Parsed) -> Wanted:
    given = {**klog.given(parsed), "endpoints.elastic.port": Given(port_of(os.environ.get("PORT", ""), _PORT), "$PORT")}
    if parsed["kubeconf"]:
        given["kubernetes.kubeconfig"] = Given(parsed["kubeconf"], "-kubeconf")
    remarks = (*_idle_modes(parsed["mode"]), *_idle_priority(parsed["priority"]))
    return Wanted(given, klog.form(_NAME, parsed), remarks, policies(parsed, _PRIORITIES))


def _idle_priority(priority: str) -> tuple[str, ...]:
    return (f"-priority spread: it does not spread, as in the original; {OURS} do",) if priority == "spread" else ()


def _idle_modes(text: str) -> tuple[str, ...]:
    """The modes that do nothing. Raises BadConfig if no other is left, where the original refuses every pod."""
    modes = [mode.strip() for mode in text.split(",") if mode.strip()]
    if unknown := [mode for mode in modes if mode not in _MODES]:
        raise BadConfig(f"-mode {text}: there is no {', '.join(unknown)}, only {', '.join(_MODES)}")
    if modes and _SHARED not in modes:
        raise BadConfig(f"-mode {text}: without {_SHARED} nothing is served, and every pod would be refused")
    return tuple(f"-mode {mode}: only {_SHARED} has a meaning" for mode in modes if mode != _SHARED)


PROGRAM = Program(CommandLine(_NAME, _ABOUT, _FLAGS), "elastic", EVERY, _understand)


def main() -> None:
    PROGRAM.main()


if __name__ == "__main__":
    main()
