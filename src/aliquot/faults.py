"""Fault points: places where a test ends this process with SIGKILL, to see that nothing is lost or doubled, or stops it
with SIGSTOP, to see what it does when it wakes in another world.

The environment variable names one of them, `after-claim` or `after-claim:stop`. Without it every point is a comparison
of two strings.
"""

import os
import signal

VARIABLE = "ALIQUOT_FAULT"
POINTS = (
    "after-filter",
    "after-claim",
    "after-binding-sent",
    "after-late-claim",
    "after-late-patch",
    "after-allocate",
    "in-prestart",
)
_SIGNALS = {"": signal.SIGKILL, "stop": signal.SIGSTOP}

_given = os.environ.get(VARIABLE, "")
_chosen, _, _how = _given.partition(":")
if _given and (_chosen not in POINTS or _how not in _SIGNALS):
    raise SystemExit(
        f"{VARIABLE}={_given} is no fault point; there are: {', '.join(POINTS)}, "
        "and :stop after one stops the process once instead of ending it"
    )


def reach(point: str) -> None:
    """End or stop the process here, at once and without any clean-up, if this is the chosen point."""
    global _chosen
    if point == _chosen:
        _chosen = ""
        os.kill(os.getpid(), _SIGNALS[_how])
