"""Fault points: places where a test kills this process with SIGKILL, or stops it with SIGSTOP.

Tests kill to check that no placement is lost or made twice, and stop to check what the process does after it continues.
The environment variable names the point: `after-claim`, or `after-claim:stop`. Without it, a point only compares two
strings.
"""

import os
import signal
from typing import Literal, get_args

VARIABLE = "ALIQUOT_FAULT"
Point = Literal[
    "after-filter",
    "after-claim",
    "after-binding-sent",
    "after-late-claim",
    "after-late-patch",
    "after-allocate",
    "in-prestart",
]
POINTS: tuple[Point, ...] = get_args(Point)
_SIGNALS = {"": signal.SIGKILL, "stop": signal.SIGSTOP}

_given = os.environ.get(VARIABLE, "")
_chosen, _, _how = _given.partition(":")
if _given and (_chosen not in POINTS or _how not in _SIGNALS):
    raise SystemExit(
        f"{VARIABLE}={_given}: unknown fault point; valid points are {', '.join(POINTS)}. "
        "With the suffix :stop, the process is stopped (SIGSTOP) instead of killed."
    )


def reach(point: Point) -> None:
    """End or stop the process at once, without any clean-up, if this is the chosen point."""
    global _chosen
    if point == _chosen:
        _chosen = ""
        os.kill(os.getpid(), _SIGNALS[_how])
