"""CPU of `kubectl gpu`: its start, and `nodes` and `explain` on a cluster of 5,000 nodes.

Each case is a process of its own, the program as people run it, with all that it takes to start, to read and to decode.
The same cluster comes from an archive, which holds only what we read of each object, and from a server that sends the
objects as an API server does, with everything that nobody reads. What that server itself takes does not count.

`explain` should take a second on the large cluster, and a start 150 ms also with a server. Neither is met yet, and
docs/performance.md says so. There the peer is what such a program cannot save: to start Python, to read the same bytes,
and to decode them with msgspec into the objects of our model.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from aliquot.model import Node, Pod
from aliquot.model.pending_pod import PendingPod
from aliquot.reports.archive import write_archive
from aliquot.reports.objects import ClusterObjects
from bench.measuring import Row
from bench.mirror import Size, served
from bench.mirroring import objects

PEER = "the limit, or a program that only reads and decodes the same bytes"
RATIO = "ratio = ours / peer"

QUICK = True
_PODS = 2
"""GPU pods of each node."""
_TURNS, _SECONDS = 5, 3.0
"""Each case runs so many times, and again until so much time has passed: a short one is worth more runs."""
_START, _NODES = 150.0, 2000.0
"""Milliseconds."""
_READ_ARCHIVE = """
import sys
from pathlib import Path
from aliquot.reports.archive import read_archive
objects = read_archive(Path(sys.argv[1]))
"""
_READ_SERVER = """
import sys
from aliquot.kube import Client, find
from aliquot.kubectl.awaiting import awaited
from aliquot.reports.reading import read_objects
async def main():
    async with Client(find(sys.argv[1]), timeout=30.0) as client:
        return await read_objects(client, 0.0)
objects = awaited(main())
"""


def run(*, quick: bool = False) -> Iterable[Row]:
    size = Size(50 if quick else 5000, (50 if quick else 5000) * _PODS, 0, 0, 0)
    small = Size(1, _PODS, 0, 0, 0)
    with tempfile.TemporaryDirectory() as folder, served(size, "--waits") as url, served(small, "--waits") as small_url:
        at = Path(folder)
        command = _Command(at)
        yield from _starts(command, write_objects(at, small), write_kubeconfig(at, small_url, small))
        yield from _large(command, size, write_objects(at, size), write_kubeconfig(at, url, size))


def _starts(command: "_Command", archive: Path, kubeconfig: Path) -> Iterator[Row]:
    yield _limited("kubectl gpu --help", command.milliseconds("--help"), _START)
    yield _limited("nodes, 1 node, archive", command.milliseconds("nodes", "--from", str(archive)), _START)
    yield _compared("explain, 1 node, archive", *command.with_peer(EXPLAIN, archive))
    yield _compared("nodes, 1 node, API server", *command.with_peer(("nodes",), kubeconfig))
    yield _compared("explain, 1 node, API server", *command.with_peer(EXPLAIN, kubeconfig))


def _large(command: "_Command", size: Size, archive: Path, kubeconfig: Path) -> Iterator[Row]:
    words = f"{size.nodes:,} nodes of {objects.CARDS} cards, {size.pods:,} GPU pods"
    for where, file in {"archive": archive, "API server": kubeconfig}.items():
        nodes, read = command.with_peer(("nodes",), file)
        yield _limited(f"nodes, {words}, {where}", nodes, _NODES)
        yield _compared(f"nodes, {words}, {where}", nodes, read)
        yield _compared(f"explain, {words}, {where}", *command.with_peer(EXPLAIN, file))


EXPLAIN = ("explain", objects.WAITING, "--namespace", "default")


def _limited(case: str, ours: float, limit: float) -> Row:
    return Row(case, ours, limit, ours / limit, "ms CPU", is_limit=True)


def _compared(case: str, ours: float, least: float) -> Row:
    return Row(case, ours, least, ours / least, "ms CPU")


@dataclass(frozen=True)
class _Command:
    """The installed program. It keeps its bytecode as pip installs it, whatever this process was told."""

    folder: Path

    def milliseconds(self, *arguments: str) -> float:
        return self._least([str(Path(sys.executable).with_name("kubectl-gpu")), *arguments])

    def with_peer(self, arguments: Sequence[str], file: Path) -> tuple[float, float]:
        """The same of a command on the cluster of a file, and of a program that only reads that cluster."""
        option, code = ("--from", _READ_ARCHIVE) if file.suffix == ".gz" else ("--kubeconfig", _READ_SERVER)
        peer = self._least([sys.executable, "-c", code, str(file)])
        return self.milliseconds(*arguments, option, str(file)), peer

    def _least(self, command: Sequence[str]) -> float:
        """The least of some runs, without the first, which compiles: a busy machine only adds to it."""
        self._seconds(command)
        began, taken = time.monotonic(), list[float]()
        while len(taken) < _TURNS or time.monotonic() - began < _SECONDS:
            taken.append(self._seconds(command))
        return 1000 * min(taken)

    def _seconds(self, command: Sequence[str]) -> float:
        before = _of_children()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self._environment, check=True)
        return _of_children() - before

    @property
    def _environment(self) -> Mapping[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**inherited, "PYTHONPYCACHEPREFIX": str(self.folder / "bytecode")}


def _of_children() -> float:
    """Seconds of CPU of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# -- the same cluster in both forms


def write_objects(folder: Path, size: Size) -> Path:
    nodes = [msgspec.json.decode(objects.node(number, 1), type=Node) for number in range(size.nodes)]
    pods = [msgspec.json.decode(objects.pod(number, size.nodes, 1), type=Pod) for number in range(size.pods)]
    waiting = objects.waiting_pod()
    pods.append(msgspec.json.decode(waiting, type=Pod))
    full = [msgspec.json.decode(waiting, type=PendingPod)]
    path = folder / f"{size.nodes}.tar.gz"
    with path.open("wb") as file:
        write_archive(file, ClusterObjects(1_770_000_000.0, nodes, pods, waiting=full), {})
    return path


def write_kubeconfig(folder: Path, url: str, size: Size) -> Path:
    path = folder / f"{size.nodes}.kubeconfig"
    config = {
        "clusters": [{"name": "it", "cluster": {"server": f"{url}/0/0"}}],
        "users": [{"name": "me", "user": {"token": "mine"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "current-context": "it",
    }
    path.write_bytes(msgspec.json.encode(config))
    return path
