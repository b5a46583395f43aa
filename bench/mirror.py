"""A cluster of 5,000 nodes and 40,000 pods, mirrored: until all is known, what is held then, and each change after.

Each listener runs alone in a fresh process and reads the same bytes from the same server process. CPU is that of the
listener's process, all threads; memory is what it holds more than before it began, after a garbage collection. The
official client is asked for fewer changes, and CPU is reckoned per change. Its SharedInformer, which cannot list in
pages, is measured on a tenth of the cluster, beside ours on the same tenth.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from bench.measuring import Row
from bench.mirroring.listener import Result

PEER = (
    "the official Python client (package kubernetes): pages of 500 and Watch, its models in a dict; or SharedInformer"
)
RATIO = "ratio = peer / ours, so above 1 ours needs less"


@dataclass(frozen=True)
class Size:
    nodes: int
    pods: int
    events: int
    peer_events: int
    spaced_events: int
    """Changes that come one at a time, a millisecond apart."""

    def __str__(self) -> str:
        return f"{self.nodes:,} nodes, {self.pods:,} pods"


FULL = Size(5000, 40_000, events=20_000, peer_events=2000, spaced_events=1000)
TENTH = Size(500, 4000, events=20_000, peer_events=2000, spaced_events=1000)
QUICK = Size(50, 400, events=400, peer_events=100, spaced_events=50)
_SPACE_US = 1000


def run(*, quick: bool = False) -> Iterable[Row]:
    size = QUICK if quick else FULL
    with served(size) as url:
        ours, peer = listened("ours", url, size, size.events), listened("official", url, size, size.peer_events)
        yield from _rows(f"mirror, {size}", ours, peer)
        yield _spaced(size, url)
        yield from _rows(f"control plane, {size}", listened("plane", url, size, size.events), peer)
    size = QUICK if quick else TENTH
    with served(size) as url:
        ours = listened("ours", url, size, size.events)
        yield from _rows(f"SharedInformer, {size}", ours, listened("official_informer", url, size, size.peer_events))


def _rows(case: str, ours: Result, peer: Result) -> Iterator[Row]:
    yield _row(f"{case}: sync", ours.sync_seconds, peer.sync_seconds, "s CPU")
    yield _row(f"{case}: held", ours.held_mib, peer.held_mib, "MiB")
    yield _row(f"{case}: each change", ours.event_us, peer.event_us, "us CPU")


def _spaced(size: Size, url: str) -> Row:
    """What waking up costs counts here, too."""
    small = listened("ours", url, size, size.spaced_events, _SPACE_US)
    peer = listened("official", url, size, size.spaced_events, _SPACE_US)
    return _row(f"mirror, {size}: each change, one at a time", small.event_us, peer.event_us, "us CPU")


def _row(case: str, ours: float, peer: float, unit: str) -> Row:
    return Row(case, ours, peer, peer / ours, unit)


@contextmanager
def served(size: Size, *options: str) -> Iterator[str]:
    command = [sys.executable, "-m", "bench.mirroring.server", str(size.nodes), str(size.pods), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.terminate()


def listened(who: str, url: str, size: Size, events: int, space_us: int = 0) -> Result:
    command = [sys.executable, "-m", "bench.mirroring.listener", who, f"{url}/{events}/{space_us}", str(events)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    result = msgspec.json.decode(done.stdout, type=Result)
    if (result.nodes, result.pods) != (size.nodes, size.pods):
        raise AssertionError(f"{who} knows {result.nodes} nodes and {result.pods} pods of {size}")
    return result
