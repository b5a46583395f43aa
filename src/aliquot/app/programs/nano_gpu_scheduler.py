"""`nano-gpu-scheduler`, the name of elastic-gpu-scheduler up to 0.4.0: its flags, served by Aliquot."""

import os

from aliquot.app.programs import klog
from aliquot.app.programs.addresses import EVERY, port_of
from aliquot.app.programs.command_line import CommandLine, Parsed, idle_flag
from aliquot.app.programs.priorities import policies, priority_flag
from aliquot.app.programs.program import Program
from aliquot.app.programs.starting import Translated
from aliquot.app.programs.values import BOOL, DURATION
from aliquot.config.declaration import Given

_NAME = "nano-gpu-scheduler"
_PORT = 39999
_PRIORITIES = {"binpack": "elastic-0.3-binpack", "spread": "elastic-0.3-spread"}
_NO_LOAD = "Aliquot reads no load from Prometheus and places pods as with -isLoadSchedule=false"
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


_FLAGS = (
    priority_flag("the largest container goes first. binpack takes the fullest card, spread the emptiest."),
    idle_flag("isLoadSchedule", _NO_LOAD, BOOL, "false"),
    idle_flag("policyConfigPath", _NO_LOAD, default="/data/policy.yaml"),
    idle_flag("prometheusUrl", _NO_LOAD, default="http://thanos-prometheus.kube-system:80"),
    idle_flag("instancePort", "the original ignores it, too", default="9100"),
    idle_flag("sync-period", "Aliquot watches the cluster and sees each change at once", DURATION, "5s"),
    *klog.KLOG_FLAGS,
)


def _translate(parsed: Parsed) -> Translated:
    given = {**klog.given(parsed), "endpoints.elastic.port": Given(port_of(os.environ.get("PORT", ""), _PORT), "$PORT")}
    return Translated(given, klog.form(_NAME, parsed), defaults=policies(parsed, _PRIORITIES))


PROGRAM = Program(CommandLine(_NAME, _ABOUT, _FLAGS), "elastic", EVERY, _translate)


def main() -> None:
    PROGRAM.main()


if __name__ == "__main__":
    main()
