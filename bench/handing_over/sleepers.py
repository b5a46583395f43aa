"""Processes that do nothing, for a driver that is told that they use its cards."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def sleeping(count: int) -> Iterator[Sequence[int]]:
    """So many processes that do nothing."""
    pids: list[int] = []
    try:
        for _ in range(count):
            pid = os.fork()
            if not pid:
                signal.pause()
                os._exit(0)
            pids.append(pid)
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
