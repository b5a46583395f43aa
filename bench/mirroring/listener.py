"""One who mirrors the cluster, alone in a fresh process: `python -m bench.mirroring.listener WHO URL EVENTS`.

Prints one line of JSON: CPU seconds until everything is known, MiB held then, CPU microseconds per change.
"""

import gc
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import msgspec


class Result(msgspec.Struct):
    nodes: int
    pods: int
    sync_seconds: float
    held_mib: float
    event_us: float


class Meter:
    """Reads the clock of this process and the memory that it holds. Made when everything is imported."""

    def __init__(self) -> None:
        gc.collect()
        self._rss = _rss_mib()
        self._began = time.process_time()
        self._synced = 0.0
        self._held = 0.0

    def synced(self) -> None:
        self._synced = time.process_time() - self._began
        gc.collect()
        self._held = _rss_mib() - self._rss
        self._began = time.process_time()

    def heard(self, nodes: int, pods: int, events: int) -> Result:
        spent = time.process_time() - self._began
        return Result(nodes, pods, self._synced, self._held, spent / max(events, 1) * 1e6)


def _rss_mib() -> float:
    resident = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(resident.split()[1]) / 1024


Listen = Callable[[str, int], Result]


def main() -> None:
    who, url, events = sys.argv[1:]
    listen: Listen = import_module(f"bench.mirroring.{who}").listen
    print(msgspec.json.encode(listen(url, int(events))).decode())


if __name__ == "__main__":
    main()
