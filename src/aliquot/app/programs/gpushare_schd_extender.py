"""`gpushare-schd-extender`: its variables, served by Aliquot."""

import os
from contextlib import nullcontext

from aliquot.app.programs.addresses import EVERY, port_of
from aliquot.app.programs.command_line import CommandLine, Parsed
from aliquot.app.programs.program import Program
from aliquot.app.programs.starting import Translated
from aliquot.app.programs.zap_lines import zap_form
from aliquot.config.declaration import Given

_PORT = 39999
_LEVELS = {"debug": "debug", "info": "info", "warn": "warning", "error": "error"}
_ABOUT = """
gpushare-schd-extender, served by Aliquot: a scheduler extender for aliyun.com/gpu-mem and gpu-count.

kube-scheduler calls POST /gpushare-scheduler/filter and bind; people can read GET /gpushare-scheduler/inspect. The same
port serves GET /version, /healthz, /readyz and /metrics, and /debug/pprof/ if ALIQUOT_PROFILING is true. The program
has no flags, only variables:

  PORT        port on all addresses of the machine (default 39999, also used if the value is not a number)
  KUBECONFIG  path of the kubeconfig (default: the pod's service account, then ~/.kube/config)
  LOG_LEVEL   debug, info, warn or error (default warn, also used for other values); JSON lines on standard output
  THREADNESS  has no effect: Aliquot has no worker threads

This program is `aliquot server` with only this endpoint. You can set every key of the server as an ALIQUOT_ variable
(docs/configuration.md). docs/programs.md lists the differences from the original.
"""


def _translate(_: Parsed) -> Translated:
    port, level = os.environ.get("PORT", ""), os.environ.get("LOG_LEVEL", "")
    given = {
        "endpoints.gpushare.port": Given(port_of(port, _PORT), "$PORT"),
        "log.level": Given(_LEVELS.get(level, "warning"), "$LOG_LEVEL"),
    }
    return Translated(given, nullcontext(zap_form()))


PROGRAM = Program(CommandLine("gpushare-schd-extender", _ABOUT), "gpushare", EVERY, _translate)


def main() -> None:
    PROGRAM.main()


if __name__ == "__main__":
    main()
