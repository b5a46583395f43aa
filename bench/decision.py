"""One decision: is there room on every card of every node, how good is each, and which node and cards are the best.

Clusters are half full, a quarter of their nodes empty. The shared request asks 20 % of cores and 20 GiB of one card,
the whole one a card, the last one eight whole cards of one node. The hard ones are what a user can ask by annotation:
connected cards on large nodes, or an original that tries every way.

What is left of each card and node is kept up to date in place, as in the server; which cards a pod gets is worked out
for the winning node.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aliquot.engine import Fleet, judge
from aliquot.model import (
    CORES,
    Charge,
    Constraints,
    ContainerRequest,
    Gpu,
    Link,
    Memory,
    NodeGpus,
    Part,
    Placement,
    Request,
    Topology,
)
from aliquot.model.links import NVLINK
from bench.measuring import Row, medians

PEER = (
    "pass: one numpy.greater_equal over the Fleet's free memory, median of 1,000; loop: the same decision by a plain "
    "Python loop; growth: the number of nodes; easy: a shared request on the same nodes"
)
RATIO = (
    "ratio = ours / peer for pass and easy (so many of these cost as much as one decision), "
    "peer / ours for loop (so many times faster) and growth (so many times less than in proportion)"
)

_CARDS = 8
_MIB = 81920
_SIZES = (100, 1000, 5000)
_PARTS = {
    "shared": Part(cores=20, memory=Memory(20 * 1024)),
    "whole": Part(whole=True),
    "eight": Part(cards=_CARDS, whole=True),
}

_Used = dict[str, list[tuple[int, int]]]
"""Per node, per card: cores and MiB in use."""


def run() -> Iterable[Row]:
    costs: dict[tuple[str, int], float] = {}
    for count in _SIZES:
        used = _half_full(count)
        fleet = _fleet(used)
        for name, part in _PARTS.items():
            passes, ours, loop = _measure(fleet, used, part)
            costs[name, count] = ours
            yield Row(f"{count} nodes {name} pass", ours * 1e6, passes * 1e6, ours / passes, "us, passes")
            yield Row(f"{count} nodes {name} loop", ours * 1e6, loop * 1e6, loop / ours, "us")
    least, most = _SIZES[0], _SIZES[-1]
    for name in _PARTS:
        growth = costs[name, most] / costs[name, least]
        yield Row(f"{least} to {most} nodes {name} growth", growth, most / least, most / least / growth, "times")
    for case, hard in hard_cases().items():
        easy = replace(hard, part=_PARTS["shared"], containers=1, topology=Topology.ANY, policy="binpack")
        ours, peer = medians([(hard.decide, 10), (easy.decide, 10)])
        yield Row(f"{case} easy", ours * 1e6, peer * 1e6, ours / peer, "us")


@dataclass(frozen=True)
class Hard:
    fleet: Fleet
    part: Part
    containers: int = 1
    topology: Topology = Topology.ANY
    policy: str = "binpack"

    def decide(self) -> Placement | None:
        containers = (
            ContainerRequest(f"c{place}", replace(self.part, cores=self.part.cores + place))
            for place in range(self.containers)
        )
        constraints = Constraints(topology=self.topology)
        request = Request("u", "default/p", "aliquot", tuple(containers), constraints=constraints)
        judgement = judge(self.fleet, request, self.policy, self.policy)
        judgement.refusals(self.fleet.names)
        best = judgement.best()
        return None if best is None else judgement.placement(best)


def hard_cases() -> dict[str, Hard]:
    eight, small = Part(cards=8, cores=20, memory=Memory(1024)), Part(cores=20, memory=Memory(1024))
    numa, nvlink = Topology.NUMA, Topology.NVLINK
    return {
        "100 nodes of 16 cards, 8 of one NUMA node": Hard(_wired(100, 16), eight, topology=numa),
        "100 nodes of 16 cards, 8 well connected": Hard(_wired(100, 16), eight, policy="topology"),
        "1 node of 24 cards, 8 of one NUMA node": Hard(_wired(1, 24), eight, topology=numa),
        "1 node of 24 cards, 8 joined by NVLinks": Hard(_wired(1, 24), eight, topology=nvlink),
        "10 nodes, 4 containers, elastic-binpack": Hard(_wired(10, 8), small, containers=4, policy="elastic-binpack"),
        "10 nodes, 5 containers, elastic-binpack": Hard(_wired(10, 8), small, containers=5, policy="elastic-binpack"),
        "1000 nodes, 2 containers, elastic-binpack": Hard(_wired(1000, 8), small, 2, policy="elastic-binpack"),
        "1000 nodes, 8 large containers": Hard(_wired(1000, 8), Part(cores=61, memory=Memory(30000)), containers=8),
    }


def _wired(nodes: int, cards: int) -> Fleet:
    """Two NUMA nodes, and a ring of NVLinks; no two nodes alike."""
    fleet, chance = Fleet(), random.Random(1)
    for number in range(nodes):
        name = f"node-{number:04}"
        gpus = tuple(
            Gpu(
                f"{name}/{card}",
                card,
                card,
                "NVIDIA A100-SXM4-80GB",
                _MIB,
                numa=card * 2 // cards,
                links=(Link(f"{name}/{(card + 1) % cards}", NVLINK),),
            )
            for card in range(cards)
        )
        taken = {gpu.uuid: chance.choice((0, 0, 0, 3, 5)) for gpu in gpus}
        charges = {uuid: Charge(10 * tenths, tenths * _MIB // 10, shares=1) for uuid, tenths in taken.items() if tenths}
        fleet.put(NodeGpus(name, gpus, 1024), charges)
    return fleet


def _measure(fleet: Fleet, used: _Used, part: Part) -> list[float]:
    """Seconds of one pass, of our decision, of the loop's decision."""
    request = Request("u", "default/p", "aliquot", (ContainerRequest("main", part),))
    (block,) = fleet.blocks
    mask = np.empty(block.free_mib.shape, np.bool_)
    mib = part.memory.amount or _MIB

    def one_pass() -> None:
        np.greater_equal(block.free_mib, mib, out=mask)

    def ours() -> Placement | None:
        judgement = judge(fleet, request, "binpack", "binpack")
        best = judgement.best()
        return None if best is None else judgement.placement(best)

    loop = _loop(used, part)
    fitting = {node for node, fits in zip(fleet.names, judge(fleet, request).fits.tolist(), strict=True) if fits}
    if fitting != loop().keys() or ours() is None:
        raise AssertionError("ours and the peer decide differently")
    rounds = max(10, 20_000 // len(used))
    return medians([(one_pass, 1000), (ours, 500), (loop, rounds)])


def _loop(used: _Used, part: Part) -> Callable[[], dict[str, tuple[float, Sequence[int]]]]:
    """Score and cards of every node that fits, as one would write it without arrays."""
    need_cores, need_mib = (CORES, _MIB) if part.whole else (part.cores, part.memory.amount)

    def decide() -> dict[str, tuple[float, Sequence[int]]]:
        fitting: dict[str, tuple[float, Sequence[int]]] = {}
        for node, cards in used.items():
            ranked = []
            node_mib = node_cores = 0
            for index, (cores, mib) in enumerate(cards):
                free_cores, free_mib = CORES - cores, _MIB - mib
                node_cores += free_cores
                node_mib += free_mib
                if free_cores >= need_cores and free_mib >= need_mib:
                    ranked.append((free_mib + free_cores * _MIB // CORES, index))
            if len(ranked) >= part.cards:
                ranked.sort()
                score = -(node_mib / _MIB + node_cores / CORES) / len(cards)
                fitting[node] = (score, [index for _, index in ranked[: part.cards]])
        max(fitting, key=lambda node: fitting[node][0], default="")
        return fitting

    return decide


def _half_full(count: int) -> _Used:
    chance = random.Random(1)
    used: _Used = {}
    for number in range(count):
        cards = [(0, 0)] * _CARDS
        if number % 4:
            cards = [_some(chance) for _ in range(_CARDS)]
        used[f"node-{number:04}"] = cards
    return used


def _some(chance: random.Random) -> tuple[int, int]:
    """Of three nodes out of four, two thirds are in use: half of the cluster."""
    tenths = chance.choice((0, 3, 5, 7, 9, 10, 10))
    return tenths * 10, tenths * _MIB // 10


def _fleet(used: _Used) -> Fleet:
    fleet = Fleet()
    for node, cards in used.items():
        gpus = tuple(Gpu(f"{node}/{card}", card, card, "NVIDIA A100-SXM4-80GB", _MIB) for card in range(_CARDS))
        charges = {
            gpu.uuid: Charge(cores, mib, shares=1) for gpu, (cores, mib) in zip(gpus, cards, strict=True) if cores
        }
        fleet.put(NodeGpus(node, gpus, 1024), charges)
    return fleet
