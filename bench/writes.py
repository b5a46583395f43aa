"""What Aliquot writes to the API server in a cluster of 5,000 nodes and 40,000 pods that run for an hour each: the
heartbeats of its agents in made-up time, and what pods cost on an embedded cluster."""

import asyncio
from collections.abc import Iterator
from statistics import mean

from structlog.testing import capture_logs

from bench.measuring import Row
from bench.writing.heartbeats import writes_by_second
from bench.writing.pods import writes_of

PEER = "limits of our own: kubelets write as many Leases, one per node every 10 s"
RATIO = "ratio = limit / ours"
QUICK = True

_SECONDS = 300
_SETTLED = 60
"""By then agents that started together are spread."""
_PODS_PER_SECOND = 40_000 / 3600
_LEADER = 1 / 2
"""Renewals of the server's Lease a second."""


def run(*, quick: bool = False) -> Iterator[Row]:
    nodes, pods = (100, 2) if quick else (5000, 12)
    beats = asyncio.run(writes_by_second(nodes, _SECONDS))[_SETTLED:]
    with capture_logs():
        writes = asyncio.run(writes_of(pods))
    each = sum(writes.values()) / pods
    churn = _PODS_PER_SECOND * nodes / 5000
    kubelets = nodes / 10
    yield _row(f"{nodes:,} nodes: heartbeats with load, mean", mean(beats), kubelets, "writes/s")
    busiest = kubelets + 5 * kubelets**0.5
    yield _row(f"{nodes:,} nodes: heartbeats with load, busiest second", max(beats), busiest, "writes/s")
    kinds = ", ".join(f"{kind} {count / pods:g}" for kind, count in sorted(writes.items()))
    yield _row(f"a pod: {kinds}", each, 3, "writes")
    total = mean(beats) + _LEADER + each * churn
    yield _row(f"{nodes:,} nodes, {churn:.1f} pods a second: all writes", total, kubelets * 1.2, "writes/s")


def _row(case: str, ours: float, limit: float, unit: str) -> Row:
    return Row(case, ours, limit, limit / ours, unit, is_limit=True)
