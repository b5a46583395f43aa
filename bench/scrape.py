"""What /metrics and the agents' Leases cost the server: how long a scrape keeps the decision loop busy at a stretch,
how much CPU it takes, and how much each Lease takes."""

import asyncio
import time
from collections.abc import Iterator

from aliquot import metrics
from aliquot.endpoints.gathering import gather
from bench.measuring import Row
from bench.scraping.plane import lease, seen_plane

PEER = "our own limits"
RATIO = "ratio = limit / ours"
QUICK = True

_TURNS = 5
_LONGEST_STRETCH = 15.0
"""Milliseconds that a call of a scheduler may wait for a scrape. A decision on 5,000 nodes takes a few itself."""
_MIB = 2**20


def run(*, quick: bool = False) -> Iterator[Row]:
    return iter(asyncio.run(_measured(100, 800) if quick else _measured(5000, 40_000)))


async def _measured(nodes: int, pods: int) -> list[Row]:
    plane = seen_plane(nodes, pods)
    stretches, totals, texts = [], [], []
    for _ in range(_TURNS):
        began = time.process_time()
        stretches.append(max(_stretches(gather(plane))))
        totals.append(time.process_time() - began)
        began = time.process_time()
        text = metrics.text()
        texts.append(time.process_time() - began)
    names = plane.cluster.totals.nodes
    beats = [(lease(plane, name, 1), lease(plane, name, 2)) for name in names]
    began = time.process_time()
    for old, new in beats:
        plane.heartbeats.see(old, new)
    each = (time.process_time() - began) / len(beats)
    size = f"{nodes:,} nodes, {pods:,} pods"
    return [
        _row(
            f"{size}: the longest stretch of a scrape", min(stretches) * 1000, _LONGEST_STRETCH, "ms CPU", is_limit=True
        ),
        _row(f"{size}: a scrape in the decision loop", min(totals) * 1000, 2000.0, "ms CPU"),
        _row(f"{size}: the text, on another thread", min(texts) * 1000, 2000.0, "ms CPU"),
        _row(f"{size}: its size", len(text) / _MIB, 64.0, "MiB"),
        _row(f"{size}: its series", text.count(b"\n"), 100_000, "lines"),
        _row(f"{size}: a Lease with load", each * 1e6, 1000.0, "us CPU"),
        _row(f"{size}: Leases of 15 s, part of a core", each * nodes / 15, 0.25, "cores", is_limit=True),
        _row(f"{size}: history in memory", plane.heartbeats.history.nbytes / _MIB, 200.0, "MiB"),
    ]


def _stretches(work: Iterator[None]) -> Iterator[float]:
    began = time.thread_time()
    for _ in work:
        yield time.thread_time() - began
        began = time.thread_time()
    yield time.thread_time() - began


def _row(case: str, ours: float, limit: float, unit: str, *, is_limit: bool = False) -> Row:
    return Row(case, ours, limit, limit / max(ours, 1e-9), unit, is_limit=is_limit)
