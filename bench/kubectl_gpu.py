"""CPU of `kubectl gpu`: its start, and `nodes` on a cluster of 5,000 nodes.

Each case is a process of its own, the program as people run it. The cluster comes from a file, so what the API server
and the network take does not count; reading the objects does.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from aliquot.model import NodeGpus, Pod, Slice
from aliquot.model.records import PLACEMENT, write_placement
from aliquot.reports.archive import write_archive
from aliquot.reports.objects import ClusterObjects
from bench.measuring import Row
from tests.factories import make_cards, make_node, make_placement, make_pod

PEER = "the limit"
RATIO = "ratio = ours / limit"

FULL = 5000
QUICK = 50
_CARDS = 8
_PODS = 2
"""GPU pods of each node."""
_TURNS = 5
_START, _READ = 150.0, 2000.0
"""Milliseconds."""


def run(*, quick: bool = False) -> Iterable[Row]:
    nodes = QUICK if quick else FULL
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "cluster.tar.gz"
        with archive.open("wb") as file:
            write_archive(file, cluster(nodes), {})
        small = Path(folder) / "small.tar.gz"
        with small.open("wb") as file:
            write_archive(file, cluster(1), {})
        yield _row("kubectl gpu --help", ["--help"], _START)
        yield _row("nodes, 1 node", ["nodes", "--from", str(small)], _START)
        words = f"nodes, {nodes:,} nodes of {_CARDS} cards, {nodes * _PODS:,} GPU pods"
        yield _row(words, ["nodes", "--from", str(archive)], _READ)


def _row(case: str, arguments: list[str], limit: float) -> Row:
    """The least of some runs: a busy machine only adds to it."""
    ours = min(_milliseconds(arguments) for _ in range(_TURNS))
    return Row(case, ours, limit, ours / limit, "ms CPU", is_limit=True)


def _milliseconds(arguments: list[str]) -> float:
    before = os.times()
    program = Path(sys.executable).with_name("kubectl-gpu")
    subprocess.run([program, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    return 1000 * spent


def cluster(nodes: int) -> ClusterObjects:
    made = [make_cards(f"node-{number:04}", mib=(15360,) * _CARDS) for number in range(nodes)]
    pods = [_pod(cards, place) for cards in made for place in range(_PODS)]
    return ClusterObjects(1_770_000_000.0, [make_node(cards.node, cards) for cards in made], pods)


def _pod(cards: NodeGpus, place: int) -> Pod:
    """As our server and agent leave a pod of gpushare."""
    placement = make_placement(cards, place, main=3072)
    (part,) = placement.slices()
    annotations = {PLACEMENT: write_placement(placement), **_keys(part)}
    status = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    name = f"{cards.node}-{place}"
    return make_pod(name, 3, node=cards.node, metadata={"annotations": annotations}, status=status)


def _keys(part: Slice) -> dict[str, str]:
    prefix = "ALIYUN_COM_GPU_MEM_"
    values = {"IDX": str(part.index), "DEV": "15", "POD": "3", "ASSIGNED": "true", "ASSUME_TIME": "1770000000000000000"}
    return {prefix + key: value for key, value in values.items()}
