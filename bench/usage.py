"""Who uses the cards: CPU of a collection, and of a scrape, with 8 cards, 100 pods and 500 processes.

The processes are real ones that sleep, and their start times come from the real /proc. Only their cgroups are made up,
because a benchmark may not make cgroups. A first collection reads the cgroup of every process, a later one those of new
processes only.
"""

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector as PrometheusCollector

from aliquot.agent.card_health import CardState
from aliquot.agent.devices import GpuProcess, Machine, Processes, Usage
from aliquot.agent.metrics import AgentMetrics
from aliquot.agent.node_pods import NodePod
from aliquot.agent.usage import Collector, HostProcesses, Part
from aliquot.clock import SystemClock
from aliquot.model import Gpu
from bench.handing_over.sleepers import sleeping
from bench.measuring import Row, compare
from tests.factories import make_gpu, pod_manifest

PEER = (
    "for a collection, a loop that only reads the same files; for a scrape, the Prometheus library with the same series"
)
RATIO = "ratio = peer / ours, so above 1 ours is faster"


@dataclass(frozen=True)
class Size:
    cards: int
    pods: int
    processes: int

    def __str__(self) -> str:
        return f"{self.cards} cards, {self.pods} pods, {self.processes} processes"


FULL = Size(8, 100, 500)
QUICK = Size(2, 4, 8)


def run(*, quick: bool = False) -> Iterable[Row]:
    size = QUICK if quick else FULL
    with sleeping(size.processes) as pids, tempfile.TemporaryDirectory(prefix="aliquot-") as folder:
        node = Node(Path(folder), size, pids)
        yield compare(f"{size}: first collection", node.collect_anew, lambda: node.read("stat", "cgroup"))
        yield compare(f"{size}: collection", node.collect, lambda: node.read("stat"))
        yield compare(f"{size}: scrape", node.scrape, node.library_scrape())


class Node:
    def __init__(self, proc: Path, size: Size, pids: Sequence[int]) -> None:
        self._proc = proc
        self._pids = pids
        (proc / "2").mkdir()
        (proc / "2" / "comm").write_text("kthreadd\n")
        self._pods = [_pod(number) for number in range(size.pods)]
        for place, pid in enumerate(pids):
            own = proc / str(pid)
            own.mkdir()
            (own / "stat").symlink_to(f"/proc/{pid}/stat")
            (own / "cgroup").write_text(_cgroup(self._pods[place % size.pods]))
        gpus = [make_gpu(index) for index in range(size.cards)]
        self._usage = {gpu.uuid: self._busy(gpus, place) for place, gpu in enumerate(gpus)}
        self._parts = [
            Part(pod.metadata.uid, "main", gpus[number % size.cards].uuid, 10, 1024)
            for number, pod in enumerate(self._pods)
        ]
        self._owners = HostProcesses(proc)
        self._metrics = AgentMetrics("n1")
        self._metrics.cards = [CardState(gpu, usage=self._usage[gpu.uuid]) for gpu in gpus]
        self._collector = Collector(
            Machine(tuple(gpus), usage=self._usage),
            self._owners,
            lambda: self._pods,
            lambda: self._parts,
            SystemClock(),
        )
        self._metrics.follow(self._collector.current)
        self.collect()

    def _busy(self, gpus: Sequence[Gpu], place: int) -> Usage:
        asked_at = time.clock_gettime(time.CLOCK_BOOTTIME) + 1
        running = [GpuProcess(pid, 2**20, 0.001, sampled_since=math.inf) for pid in self._pids[place :: len(gpus)]]
        return Usage(0.5, 2**30, 60, 200.0, 1e6, 10**9, 10**9, 0, 0, processes=Processes(asked_at, tuple(running)))

    def collect_anew(self) -> None:
        self._owners = HostProcesses(self._proc)
        self.collect()

    def collect(self) -> None:
        """As the agent does it, without its thread."""
        listed = [usage.processes for usage in self._usage.values() if usage.processes]
        self._collector.join(time.time(), self._usage, self._owners.of(listed))

    def read(self, *names: str) -> None:
        """Open, read and close the files of every process, and nothing else."""
        for pid in self._pids:
            for name in names:
                file = os.open(f"{self._proc}/{pid}/{name}", os.O_RDONLY)
                os.read(file, 16384)
                os.close(file)

    def scrape(self) -> str:
        return self._metrics.text()

    def library_scrape(self) -> Callable[[], bytes]:
        """The same series by the library that the server uses, from samples that are ready."""
        families = list(text_string_to_metric_families(self._metrics.text()))

        class Same(PrometheusCollector):
            def collect(self) -> Iterator[GaugeMetricFamily]:
                for family in families:
                    labels = list(family.samples[0].labels) if family.samples else []
                    made = GaugeMetricFamily(family.name, family.documentation, labels=labels)
                    for sample in family.samples:
                        made.add_metric(list(sample.labels.values()), sample.value)
                    yield made

        registry = CollectorRegistry()
        registry.register(Same())
        return lambda: generate_latest(registry)


def _pod(number: int) -> NodePod:
    manifest: dict[str, object] = pod_manifest(f"pod-{number:03}")
    uid = f"00000000-0000-4000-8000-{number:012x}"
    status = {"name": "main", "containerID": f"containerd://{number:064x}", "state": {"running": {}}}
    metadata: Mapping[str, object] = {"name": f"pod-{number:03}", "namespace": "default", "uid": uid}
    whole = {**manifest, "metadata": metadata, "status": {"phase": "Running", "containerStatuses": [status]}}
    return msgspec.convert(whole, NodePod)


def _cgroup(pod: NodePod) -> str:
    """Twelve controllers, as with cgroup v1."""
    path = f"/kubepods/burstable/pod{pod.metadata.uid}/{pod.running['main']}"
    return "".join(f"{number}:controller-{number}:{path}\n" for number in range(12, 0, -1)) + "0::/\n"
