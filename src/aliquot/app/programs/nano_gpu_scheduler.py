"""`nano-gpu-scheduler`, the name of elastic-gpu-scheduler up to 0.4.0: its flags, and Aliquot behind its routes."""

import os

from aliquot.app.programs import klog
from aliquot.app.programs.addresses import EVERY, port_of
from aliquot.app.programs.command_line import CommandLine, Flag, Parsed
from aliquot.app.programs.klog_flags import KLOG_FLAGS
from aliquot.app.programs.priorities import policies, priority_flag
from aliquot.app.programs.starting import Program, Wanted
from aliquot.app.programs.values import BOOL, DURATION, TEXT, Kind
from aliquot.config import Given

_NAME = "nano-gpu-scheduler"
_PORT = 39999
_PRIORITIES = {"binpack": "elastic-0.3-binpack", "spread": "elastic-0.3-spread"}
_NO_LOAD = "Aliquot reads no load from Prometheus and places as with -isLoadSchedule=false"
_NO_EFFECT = {
    "isLoadSchedule": _NO_LOAD,
    "policyConfigPath": _NO_LOAD,
    "prometheusUrl": _NO_LOAD,
    "instancePort": "it had none in the original either",
    "sync-period": "a change in the cluster is heard of at once",
}
_ABOUT = """
nano-gpu-scheduler, answered by Aliquot: a scheduler extender for nano-gpu/gpu-percent, and for the names that its
successor elastic-gpu-scheduler has.

POST /scheduler/filter, priorities and bind are for kube-scheduler, POST /status for people; GET /version, /healthz,
/readyz and /metrics are on the same port, and /debug/pprof/ if ALIQUOT_PROFILING is true. Its variables:

  KUBECONFIG  the path of a kubeconfig. Without: the pod's service account, ~/.kube/config
  PORT        the port, on every address of the machine (default 39999, also for what is no number)
  THREADNESS  has no effect: what the original spreads over so many workers is done here as it is heard of

It is `aliquot server` with this one endpoint: every key of that can be given as an ALIQUOT_ variable
(docs/configuration.md). docs/programs.md says what differs from the original.
"""


def _idle(name: str, default: str, kind: Kind = TEXT) -> Flag:
    return Flag(name, f"Has no effect: {_NO_EFFECT[name]}.", kind, default)


_FLAGS = (
    priority_flag("the largest container first, for binpack on the fullest card, for spread on the emptiest."),
    _idle("isLoadSchedule", "false", BOOL),
    _idle("policyConfigPath", "/data/policy.yaml"),
    _idle("prometheusUrl", "http://thanos-prometheus.kube-system:80"),
    _idle("instancePort", "9100"),
    _idle("sync-period", "5s", DURATION),
    *KLOG_FLAGS,
)


def _understand(parsed: Parsed) -> Wanted:
    given = {**klog.given(parsed), "endpoints.elastic.port": Given(port_of(os.environ.get("PORT", ""), _PORT), "$PORT")}
    remarks = tuple(f"{parsed.said[name]}: {why}" for name, why in _NO_EFFECT.items() if name in parsed.said)
    return Wanted(given, klog.form(_NAME, parsed), remarks, policies(parsed, _PRIORITIES))


PROGRAM = Program(CommandLine(_NAME, _ABOUT, _FLAGS), "elastic", EVERY, _understand)


def main() -> None:
    PROGRAM.main()


if __name__ == "__main__":
    main()
