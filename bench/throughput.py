"""Pods a second of the real kube-scheduler with us behind it (filter, prioritize, bind) and without any extender.

The same nodes and the same queue of pods, which stands before the scheduler starts; nothing limits its requests, and it
scores every node. Runs alternate, on a real API server beside them on the same machine.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.measuring import Row, in_turns
from bench.scheduling.queue import Emptied, emptied, make_nodes, make_pods, remove_pods
from tests.real.scheduler import Scheduling
from tests.real.serving import serving

PEER = "the same kube-scheduler with no extender"
RATIO = "ratio = ours / peer: of pods a second the more the better, of CPU the less"

_ALONE: Mapping[str, Any] = {"clientConnection": {"qps": 5000, "burst": 10000}, "percentageOfNodesToScore": 100}


@dataclass(frozen=True)
class Size:
    nodes: int = 1000
    pods: int = 2000
    runs: int = 5


QUICK = Size(nodes=10, pods=40, runs=1)


def run(*, quick: bool = False) -> Iterable[Row]:
    size = QUICK if quick else Size()
    with Scheduling.up() as cluster:
        make_nodes(cluster, size.nodes)
        runs = [(_with_us(cluster, size.pods), _alone(cluster, size.pods)) for _ in range(size.runs)]
    ours, peer = [each for each, _ in runs], [each for _, each in runs]
    case = f"{size.pods:,} pods on {size.nodes:,} nodes"
    yield in_turns(f"{case}: throughput", [each.rate for each in ours], [each.rate for each in peer], "pods/s")
    alone = _ms(peer, "kube-scheduler")
    yield in_turns(f"{case}: CPU of kube-scheduler, each pod", _ms(ours, "kube-scheduler"), alone, "ms CPU")
    yield in_turns(f"{case}: CPU of our server beside its, each pod", _ms(ours, "aliquot-server"), alone, "ms CPU")


def _with_us(cluster: Scheduling, pods: int) -> Emptied:
    make_pods(cluster, pods)
    with serving(cluster) as aliquot:
        extender = {
            "urlPrefix": f"{aliquot.url('native')}/aliquot",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "bindVerb": "bind",
            "weight": 1,
            "nodeCacheCapable": True,
            "managedResources": [{"name": "aliyun.com/gpu-mem"}],
        }
        done = emptied(cluster, pods, {**_ALONE, "extenders": [extender]}, aliquot.process)
    remove_pods(cluster)
    return done


def _alone(cluster: Scheduling, pods: int) -> Emptied:
    make_pods(cluster, pods)
    done = emptied(cluster, pods, _ALONE)
    remove_pods(cluster)
    return done


def _ms(runs: list[Emptied], process: str) -> list[float]:
    return [each.cpu[process] * 1000 for each in runs]
