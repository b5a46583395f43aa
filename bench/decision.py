"""One decision: is there room on every card of every node, how good is each, and which node and cards are the best.

Clusters are half full, a quarter of their nodes empty. The shared request asks 20 % of cores and 20 GiB of one card,
the whole one a card, the last one eight whole cards of one node.
"""

import random
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from aliquot.engine import Fleet, judge
from aliquot.model import CORES, Charge, ContainerRequest, Gpu, Memory, NodeGpus, Part, Placement, Request
from bench.measuring import Row, medians

PEER = (
    "pass: one numpy.greater_equal over the Fleet's free memory, median of 1,000; loop: the same decision by a plain "
    "Python loop; growth: the number of nodes"
)
RATIO = (
    "ratio = ours / peer for pass (so many passes cost as much as one decision), "
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


def _measure(fleet: Fleet, used: _Used, part: Part) -> list[float]:
    """Seconds of one pass, of our decision, of the loop's decision."""
    request = Request("u", "default/p", "aliquot", (ContainerRequest("main", part),))
    mask = np.empty(fleet.free_mib.shape, np.bool_)
    mib = part.memory.amount or _MIB

    def one_pass() -> None:
        np.greater_equal(fleet.free_mib, mib, out=mask)

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
