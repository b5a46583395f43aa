"""`nano-gpu-scheduler`, the name of elastic-gpu-scheduler up to 0.4.0: its flags, served by Aliquot."""

import os

from aliquot.app.programs import klog
from aliquot.app.programs.addresses import EVERY, port_of
from aliquot.app.programs.command_line import CommandLine, Flag, Parsed
from aliquot.app.programs.priorities import policies, priority_flag
from aliquot.app.programs.program import Program
from aliquot.app.programs.starting import Translated
from aliquot.app.programs.values import BOOL, DURATION, TEXT, ValueKind
from aliquot.config.declaration import Given

_NAME = "nano-gpu-scheduler"
_PORT = 39999
_PRIORITIES = {"binpack": "elastic-0.3-binpack", "spread": "elastic-0.3-spread"}
_NO_LOAD = "Aliquot reads no load from Prometheus and places pods as with -isLoadSchedule=false"
_NO_EFFECT = {
    "isLoadSchedule": _NO_LOAD,
    "policyConfigPath": _NO_LOAD,
    "prometheusUrl": _NO_LOAD,
    "instancePort": "the original ignores it, too",
    "sync-period": "Aliquot watches the cluster and sees each change at once",
}
_ABOUT = """
nano-gpu-scheduler, served by Aliquot: a scheduler extender for nano-gpu/gpu-percent, and for the resources of its
successor elastic-gpu-scheduler.

kube-scheduler calls POST /scheduler/filter, priorities and bind; POST /status shows what is left of each card. The same
port serves GET /version, /healthz, /readyz and /metrics, and /debug/pprof/ if ALIQUOT_PROFILING is true. Variables:

  KUBECONFIG  path of the kubeconfig (default: the pod's service account, then ~/.kube/config)
  PORT        port on all addresses of the machine (default 39999, also used if the value is not a number)
  THREADNESS  has no effect: Aliquot has no worker threads

This program is `aliquot server` with only this endpoint. You can set every key of the server as an ALIQUOT_ variable
(docs/configuration.md). docs/programs.md lists the differences from the original.
"""


def _idle(name: str, default: str, kind: ValueKind = TEXT) -> Flag:
    return Flag(name, f"Has no effect: {_NO_EFFECT[name]}.", kind, default)


_FLAGS = (
    priority_flag("the largest container goes first. binpack takes the fullest card, spread the emptiest."),
    _idle("isLoadSchedule", "false", BOOL),
    _idle("policyConfigPath", "/data/policy.yaml"),
    _idle("prometheusUrl", "http://thanos-prometheus.kube-system:80"),
    _idle("instancePort", "9100"),
    _idle("sync-period", "5s", DURATION),
    *klog.KLOG_FLAGS,
)


def _translate(parsed: Parsed) -> Translated:
    given = {**klog.given(parsed), "endpoints.elastic.port": Given(port_of(os.environ.get("PORT", ""), _PORT), "$PORT")}
    remarks = tuple(f"{parsed.written[name]}: {why}" for name, why in _NO_EFFECT.items() if name in parsed.written)
    return Translated(given, klog.form(_NAME, parsed), remarks, policies(parsed, _PRIORITIES))


PROGRAM = Program(CommandLine(_NAME, _ABOUT, _FLAGS), "elastic", EVERY, _translate)


def main() -> None:
    PROGRAM.main()


if __name__ == "__main__":
    main()
