"""Processes that do nothing, for a driver that is told that they use its cards."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def sleeping(count: int) -> Iterator[Sequence[int]]:
    """The PIDs of so many processes."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            processes.append(subprocess.Popen(["sleep", "infinity"]))  # noqa: PERF401 (those that started must end)
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
