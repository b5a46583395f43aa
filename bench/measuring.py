"""How benchmarks measure: ours and the peer in turns, so that a noisy machine is noisy for both."""

import time
from collections.abc import Callable

import msgspec


class Row(msgspec.Struct):
    case: str
    ours: float
    peer: float
    ratio: float
    unit: str


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


def _cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
