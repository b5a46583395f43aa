"""Runs a command as if on a machine that stands still now and then: `python -m tests.stalls make test`.

A test that fails so leans on a clock. A busy host does the same to a virtual machine, once in a hundred runs.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

_BETWEEN_SECONDS = 2.0
_LENGTHS = (0.05, 0.2, 0.5, 1.0, 2.0)
_STOPPED = "T"


def descendants(ancestor: int) -> list[int]:
    """A process and all that it began, whatever groups and sessions they are in, but for what stands still already."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            words = stat.read_text().rpartition(")")[2].split()
            if words[0] != _STOPPED:
                children.setdefault(int(words[1]), []).append(int(stat.parent.name))
    found = [ancestor]
    for process in found:  # it grows meanwhile
        found += children.get(process, [])
    return found


def send(number: signal.Signals, processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def run(command: Sequence[str]) -> int:
    chance, stalls = random.Random(), 0
    with subprocess.Popen(command) as running:
        while True:
            try:
                code = running.wait(chance.expovariate(1 / _BETWEEN_SECONDS))
            except subprocess.TimeoutExpired:
                stopped = descendants(running.pid)
                send(signal.SIGSTOP, stopped)
                try:
                    time.sleep(chance.choice(_LENGTHS))
                finally:
                    send(signal.SIGCONT, reversed(stopped))  # none sees that one of its children stands still
                stalls += 1
            else:
                print(f"it stood still {stalls} times", file=sys.stderr)
                return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
