"""How benchmarks measure: ours and the peer in turns, so that a noisy machine is noisy for both."""

import statistics
import sys
import time
from collections.abc import Callable, Sequence

import msgspec


class Row(msgspec.Struct):
    case: str
    ours: float
    peer: float
    ratio: float
    unit: str
    spread: tuple[float, float] | None = None
    """The least and the most that the ratio was, where it was measured in turns."""
    is_limit: bool = False
    """Whether the peer is a limit. The benchmark fails if ours is above it."""


def say(line: str) -> None:
    """Of what takes long, beside the table."""
    print(line, file=sys.stderr, flush=True)


def in_turns(case: str, ours: Sequence[float], peer: Sequence[float], unit: str) -> Row:
    """Medians of what was measured turn by turn; the ratio is ours / peer."""
    ratios = [mine / theirs for mine, theirs in zip(ours, peer, strict=True)]
    spread = (min(ratios), max(ratios))
    return Row(case, statistics.median(ours), statistics.median(peer), statistics.median(ratios), unit, spread)


def cpu_of(pid: int) -> float:
    """Seconds that all threads of another process have used: so the kernel numbers its CPU clock."""
    return time.clock_gettime((~pid << 3) | 2)


def compare(case: str, ours: Callable[[], object], peer: Callable[[], object], *, rounds: int = 15) -> Row:
    """The median CPU time of each, in milliseconds."""
    mine: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        mine.append(_cpu(ours))
        theirs.append(_cpu(peer))
    middle = rounds // 2
    a, b = sorted(mine)[middle], sorted(theirs)[middle]
    return Row(case, a * 1000, b * 1000, b / a, "ms CPU")


def medians(works: Sequence[tuple[Callable[[], object], int]], *, turns: int = 10) -> list[float]:
    """The median wall time of each in seconds, each called so many times in all; in turns, as above."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(turns):
        for taken, (work, calls) in zip(times, works, strict=True):
            for _ in range(max(1, calls // turns)):
                start = time.perf_counter()
                work()
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def _cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
