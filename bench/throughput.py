"""Pods a second of the real kube-scheduler with us behind it (filter, prioritize, bind) and without any extender.

The same nodes and the same queue of pods, which stands before the scheduler starts; nothing limits its requests, and it
scores every node. Runs alternate, on a real API server beside them on the same machine. What any extender costs is
measured, too: one in Go that lets every node pass and leaves binding to the scheduler.
"""

import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.extending.processes import go_peer
from bench.measuring import Row, in_turns, say
from bench.scheduling.queue import Emptied, emptied, make_nodes, queued
from tests.real.scheduler import Scheduling
from tests.real.serving import Serving
from tests.rig.network import LOOPBACK
from tests.rig.processes import Process

PEER = "the same kube-scheduler with no extender"
RATIO = "ratio = ours / peer: of pods a second the more the better, of CPU the less"

_ALONE: Mapping[str, Any] = {"clientConnection": {"qps": 5000, "burst": 10000}, "percentageOfNodesToScore": 100}

_EXTENDER: Mapping[str, Any] = {
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "weight": 1,
    "nodeCacheCapable": True,
    "managedResources": [{"name": "aliyun.com/gpu-mem"}],
}
_SCHEDULER, _SERVER = "kube-scheduler", "aliquot-server"


@dataclass(frozen=True)
class Size:
    nodes: int = 1000
    pods: int = 2000
    runs: int = 5


QUICK = Size(nodes=10, pods=40, runs=1)


def run(*, quick: bool = False) -> Iterable[Row]:
    size = QUICK if quick else Size()
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-") as folder, ExitStack() as stack:
        peer = stack.enter_context(go_peer(Path(folder)))
        cluster = stack.enter_context(Scheduling.up())
        queue = _Queue(cluster, size.pods)
        make_nodes(cluster, size.nodes)
        runs = []
        for number in range(1, size.runs + 1):
            sides = _ours(queue), _any(queue, peer.port, peer.process), queue.emptied()
            runs.append(sides)
            say(f"run {number} of {size.runs}, pods a second: " + ", ".join(f"{each.rate:.0f}" for each in sides))
    ours, others, alone = ([each[side] for each in runs] for side in range(3))
    case = f"{size.pods:,} pods on {size.nodes:,} nodes"
    for name, side in (("us", ours), ("an extender in Go that accepts every node", others)):
        yield in_turns(f"{case}, {name}: throughput", _rates(side), _rates(alone), "pods/s")
        yield in_turns(
            f"{case}, {name}: kube-scheduler, each pod", _ms(side, _SCHEDULER), _ms(alone, _SCHEDULER), "ms CPU"
        )
    yield in_turns(f"{case}, us: our server, each pod", _ms(ours, _SERVER), _ms(alone, _SCHEDULER), "ms CPU")


class _Queue:
    def __init__(self, cluster: Scheduling, pods: int) -> None:
        self.cluster = cluster
        self.pods = pods
        self.kubeconfig = cluster.service_account_kubeconfig("aliquot-system", "aliquot-server")

    def emptied(self, extender: Mapping[str, Any] | None = None, *measured: Process) -> Emptied:
        """The same pods again, from a scheduler that starts now."""
        config = {**_ALONE, "extenders": [{**_EXTENDER, **extender}]} if extender else _ALONE
        with queued(self.cluster, self.pods):
            return emptied(self.cluster, self.pods, config, *measured)


def _ours(queue: _Queue) -> Emptied:
    aliquot = Serving(queue.kubeconfig, queue.kubeconfig.with_name(f"{_SERVER}.log"), {}, {})
    aliquot.start()
    try:
        return queue.emptied({"urlPrefix": f"{aliquot.url('native')}/aliquot", "bindVerb": "bind"}, aliquot.process)
    finally:
        aliquot.process.stop()


def _any(queue: _Queue, port: int, process: Process) -> Emptied:
    return queue.emptied({"urlPrefix": f"http://{LOOPBACK}:{port}/all"}, process)


def _rates(runs: list[Emptied]) -> list[float]:
    return [each.rate for each in runs]


def _ms(runs: list[Emptied], process: str) -> list[float]:
    return [each.cpu[process] * 1000 for each in runs]
