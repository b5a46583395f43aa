"""`gpushare-schd-extender`: its variables, and Aliquot behind its routes."""

import os
from contextlib import nullcontext

from aliquot.app.programs.addresses import EVERY, port_of
from aliquot.app.programs.command_line import CommandLine, Parsed
from aliquot.app.programs.starting import Program, Wanted
from aliquot.app.programs.zap_lines import zap_form
from aliquot.config import Given

_PORT = 39999
_LEVELS = {"debug": "debug", "info": "info", "warn": "warning", "error": "error"}
_ABOUT = """
gpushare-schd-extender, answered by Aliquot: a scheduler extender for aliyun.com/gpu-mem and gpu-count.

POST /gpushare-scheduler/filter and bind are for kube-scheduler, GET /gpushare-scheduler/inspect for people; GET
/version, /healthz, /readyz and /metrics are on the same port, and /debug/pprof/ if ALIQUOT_PROFILING is true. It has no
flags, but variables:

  PORT        the port, on every address of the machine (default 39999, also for what is no number)
  KUBECONFIG  the path of a kubeconfig (default: the pod's service account, then ~/.kube/config)
  LOG_LEVEL   debug, info, warn or error (default warn, also for anything else); JSON lines on standard output
  THREADNESS  has no effect: what the original spreads over so many workers is done here as it is heard of

It is `aliquot server` with this one endpoint: every key of that can be given as an ALIQUOT_ variable
(docs/configuration.md). docs/programs.md says what differs from the original.
"""


def _understand(_: Parsed) -> Wanted:
    port, level = os.environ.get("PORT", ""), os.environ.get("LOG_LEVEL", "")
    given = {
        "endpoints.gpushare.port": Given(port_of(port, _PORT), "$PORT"),
        "log.level": Given(_LEVELS.get(level, "warning"), "$LOG_LEVEL"),
    }
    return Wanted(given, nullcontext(zap_form()))


PROGRAM = Program(CommandLine("gpushare-schd-extender", _ABOUT), "gpushare", EVERY, _understand)


def main() -> None:
    PROGRAM.main()


if __name__ == "__main__":
    main()
