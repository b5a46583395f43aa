"""Signals that end a process, also where it is the first of a container."""

import os
import signal
from types import FrameType


def hear_from_the_start() -> None:
    """The kernel keeps from the first process of a container whatever it has no handler for: stopping one that still
    starts would take as long as the pod's grace period."""
    if os.getpid() == 1:
        ends_at_once(signal.SIGTERM)


def ends_at_once(number: signal.Signals) -> None:
    """Let a signal do what it does by default."""
    signal.signal(number, _end if os.getpid() == 1 else signal.SIG_DFL)


def _end(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)
