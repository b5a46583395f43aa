"""Run alone in a process: what the cluster state holds of a cluster, in MiB, and a decision on it."""

import gc
import sys
from pathlib import Path

import msgspec

from aliquot.control.state.cluster_state import ClusterState
from aliquot.control.state.events import NodeSeen
from aliquot.model import Gpu, Node, NodeGpus
from aliquot.model.bounds import MAX_CARDS
from aliquot.model.records import INVENTORY, write_inventory

_CARDS = 8
_MODEL = "NVIDIA A100-SXM4-80GB"


def inventory(node: str, cards: int) -> str:
    gpus = tuple(Gpu(f"GPU-{node}-{index}", index, index, _MODEL, 81920, numa=index % 2) for index in range(cards))
    return write_inventory(NodeGpus(node, gpus, 1024))


def hostile() -> str:
    """4,600 cards in what the API server takes of annotations."""
    cards = (f'{{"uuid":"{index:x}","index":{index},"minor":0,"model":"","mib":9}}' for index in range(4600))
    return f'{{"v":1,"unitMiB":1024,"gpus":[{",".join(cards)}]}}'


def odd_one(case: str) -> str:
    match case:
        case "plain":
            return inventory("node-0000", _CARDS)
        case "largest":
            return inventory("node-0000", MAX_CARDS)
    return hostile()


def held_mib(case: str, nodes: int) -> float:
    """With one node of the kind that the case names."""
    before = _resident_mib()
    cluster = ClusterState()
    for number in range(nodes):
        name = f"node-{number:04}"
        text = inventory(name, _CARDS) if number else odd_one(case)
        metadata = {"name": name, "annotations": {INVENTORY: text}}
        cluster.apply(NodeSeen(msgspec.convert({"metadata": metadata}, Node)))
    assert len(cluster.fleet.nodes) == nodes
    gc.collect()
    return _resident_mib() - before


def _resident_mib() -> float:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    print(held_mib(sys.argv[1], int(sys.argv[2])))
