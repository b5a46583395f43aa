"""`aliquot agent` on a machine with eight cards, gpushare and native, 100 running pods and 500 processes on the cards:
what it holds, what it uses while nothing happens, and what each start of a pod costs.

CPU is that of the agent's process, all threads. The start of a pod is one Allocate and one PreStart, with all that
belongs to them: what the agent asks kubelet, the spec, the mark on the pod, and the pod's changes in its watch. The
fake NVML library needs a C compiler.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from aliquot.embedded.kubelet_devices import DeviceManager
from aliquot.model import Pod
from bench.handing_over import idle_plugin
from bench.handing_over.machine import machine
from bench.handing_over.sleepers import sleeping
from bench.measuring import Row, cpu_of
from tests.factories import pod_manifest
from tests.rig import Process

PEER = "the limits of 60 MB and 1 % of a core; for the start of a pod, a plugin in Python that answers and does nothing"
RATIO = "ratio = ours / peer, so below 1 is within the limit; above a limit, the benchmark fails"

_LIMIT_MB = 60.0
_LIMIT_PERCENT = 1.0


@dataclass(frozen=True)
class Size:
    cards: int
    pods: int
    processes: int
    """On its cards."""
    idle_seconds: float
    """How long nothing happens. The agent reads its cards and looks after its specs meanwhile."""

    def __str__(self) -> str:
        return f"{self.cards} cards, {self.pods} pods, {self.processes} processes"


FULL = Size(cards=8, pods=100, processes=500, idle_seconds=60.0)
QUICK = Size(cards=2, pods=4, processes=8, idle_seconds=1.0)


def run(*, quick: bool = False) -> Iterable[Row]:
    size = QUICK if quick else FULL
    measured = asyncio.run(measure(size))
    calls_ms = asyncio.run(idle_calls_ms(size.pods))
    idle = f"{size}: {size.idle_seconds:g} s of nothing"
    is_limit = not quick  # a second of nothing is too short to be judged
    yield _row(f"{size}: memory (RSS)", measured.rss_mb, _LIMIT_MB, "MB", is_limit=is_limit)
    yield _row(f"{size}: memory (PSS)", measured.pss_mb, _LIMIT_MB, "MB", is_limit=is_limit)
    yield _row(idle, measured.idle_percent, _LIMIT_PERCENT, "% of a core", is_limit=is_limit)
    yield _row(f"{size}: Allocate and PreStart", measured.start_ms, calls_ms, "ms CPU")


@dataclass(frozen=True)
class Measured:
    rss_mb: float
    pss_mb: float
    idle_percent: float
    start_ms: float


async def measure(size: Size) -> Measured:
    with sleeping(size.processes) as pids, tempfile.TemporaryDirectory(prefix="aliquot-") as folder:
        async with machine(Path(folder), size.cards, pids) as node:
            pid = node.agent.pid
            with _cpu_seconds(pid) as starting:
                await node.start_pods([f"pod-{number:03}" for number in range(size.pods)])
            began = time.monotonic()
            with _cpu_seconds(pid) as idling:
                await asyncio.sleep(size.idle_seconds)
            seconds = time.monotonic() - began
            rss, pss = _memory_mb(pid)
    return Measured(rss, pss, 100 * idling[0] / seconds, 1000 * starting[0] / size.pods)


async def idle_calls_ms(pods: int) -> float:
    """What an Allocate and a PreStart cost a plugin that does nothing."""
    with tempfile.TemporaryDirectory(prefix="aliquot-") as name:
        folder = Path(name)
        async with DeviceManager(folder / "device-plugins") as kubelet:
            command: list[str | Path] = [sys.executable, "-m", idle_plugin.__name__, kubelet.folder]
            process = Process("idle", command, log=folder / "idle.log")
            process.start()
            try:
                while not kubelet.capacity().get(idle_plugin.RESOURCE):
                    await kubelet.changed.wait()
                    kubelet.changed.clear()
                with _cpu_seconds(process.pid) as used:
                    for pod in map(_asking, range(pods)):
                        await kubelet.admit(pod)
                        await kubelet.pre_start(pod, "main")
            finally:
                process.kill()
    return 1000 * used[0] / pods


def _asking(number: int) -> Pod:
    manifest = pod_manifest(f"pod-{number:03}")
    manifest["metadata"]["uid"] = str(number)
    manifest["spec"]["containers"][0]["resources"] = {"limits": {idle_plugin.RESOURCE: "1"}}
    return msgspec.convert(manifest, Pod)


def _row(case: str, ours: float, peer: float, unit: str, *, is_limit: bool = False) -> Row:
    return Row(case, ours, peer, ours / peer, unit, is_limit=is_limit)


@contextmanager
def _cpu_seconds(pid: int) -> Iterator[list[float]]:
    """A list that has what the process used meanwhile, when the context ends."""
    used: list[float] = []
    before = cpu_of(pid)
    yield used
    used.append(cpu_of(pid) - before)


def _memory_mb(pid: int) -> tuple[float, float]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.endswith(" kB")}
    return kib["Rss"] * 1024 / 1e6, kib["Pss"] * 1024 / 1e6
