"""Fault points: places where a test ends this process with SIGKILL, to see that nothing is lost or doubled.

The environment variable names one of them. Without it every point is a comparison of two strings.
"""

import os
import signal

VARIABLE = "ALIQUOT_FAULT"
POINTS = ("after-filter", "after-claim", "after-binding-sent", "after-allocate", "in-prestart")

_chosen = os.environ.get(VARIABLE, "")
if _chosen and _chosen not in POINTS:
    raise SystemExit(f"{VARIABLE}={_chosen} is no fault point; there are: {', '.join(POINTS)}")


def reach(point: str) -> None:
    """End the process here, at once and without any clean-up, if this is the chosen point."""
    if point == _chosen:
        os.kill(os.getpid(), signal.SIGKILL)
