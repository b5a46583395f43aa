"""A decision of `lookahead` beside one of `binpack`, on a cluster that changes with every decision.

5,000 nodes of eight cards are half full of pods of 77 shapes, with CPU and memory. Pods come, and as many leave, so
that each decision finds nodes that have changed since the last one of its shape. What is measured is the decision
(which nodes fit, which is the best, which cards), and in another row the entry of its result, too.
"""

import random
import time
from collections import deque
from collections.abc import Iterable
from itertools import product

from aliquot.engine import Fleet, PolicySettings, judge
from aliquot.engine.workload import COMMON, WHOLE, PodShape, Workload
from aliquot.model import Charge, ContainerRequest, Gpu, Host, Memory, NodeGpus, Part, Placement, Request, charges
from bench.measuring import Row, in_turns, say

PEER = "binpack: the same pods on a cluster of its own, in turns"
RATIO = "ratio = ours / peer: a decision costs so many of binpack's"
QUICK = True

_CARDS, _MIB = 8, 81920
_HOST = Host(96_000, 384 * 1024)
_TURNS = 8


def run(*, quick: bool = False) -> Iterable[Row]:
    nodes, warm, each = (200, 50, 20) if quick else (5000, 3000, 250)
    workload = Workload(tuple(_shapes()))
    clusters = []
    for policy in ("lookahead", "binpack"):
        say(f"filling {nodes} nodes, then {warm} decisions of {policy}")
        clusters.append(_Cluster(nodes, policy, workload))
        clusters[-1].fill()
        for _ in range(warm):
            clusters[-1].turn()
    decided: list[list[float]] = [[], []]
    entered: list[list[float]] = [[], []]
    for _ in range(_TURNS):
        for place, cluster in enumerate(clusters):
            times = [cluster.turn() for _ in range(each)]
            decided[place].append(sum(first for first, _ in times) / each * 1e6)
            entered[place].append(sum(first + second for first, second in times) / each * 1e6)
    yield in_turns(f"{nodes} nodes, decide", decided[0], decided[1], "us")
    yield in_turns(f"{nodes} nodes, decide and enter", entered[0], entered[1], "us")


def _shapes() -> Iterable[PodShape]:
    """The common workload, each shape with seven sizes of CPU and memory."""
    for shape, cores in product(COMMON.shapes, (1, 2, 4, 6, 8, 11, 14)):
        cards = shape.cards * max(1, shape.share // 250) // 4 or 1
        yield PodShape(shape.cards, shape.share, shape.weight, (), cores * cards * 1000, cores * cards * 4096)


class _Cluster:
    def __init__(self, nodes: int, policy: str, workload: Workload) -> None:
        self.policy, self.settings, self.chance = policy, PolicySettings(workload=workload), random.Random(1)
        self.shapes, self.weights = workload.shapes, [shape.weight for shape in workload.shapes]
        self.cards = {f"node-{number:04}": _node(f"node-{number:04}") for number in range(nodes)}
        self.used: dict[str, dict[str, Charge]] = {name: {} for name in self.cards}
        self.left = dict.fromkeys(self.cards, _HOST)
        self.pods: deque[tuple[Request, Placement]] = deque()
        self.fleet = Fleet()
        for name in self.cards:
            self.enter(name)

    def fill(self) -> None:
        taken, room = 0.0, len(self.cards) * _CARDS * WHOLE / 2
        policy, self.policy = self.policy, "tightest"
        while taken < room:
            shape = self.draw()
            taken += shape.cards * shape.share
            self.place(_request(shape))
        self.policy = policy
        self.chance.shuffle(self.pods)

    def turn(self) -> tuple[float, float]:
        """A pod comes and another goes: seconds of the decision, and of the entry of its result."""
        request = _request(self.draw())
        times = self.place(request)
        self.go(*self.pods.popleft())
        return times

    def draw(self) -> PodShape:
        (shape,) = self.chance.choices(self.shapes, self.weights)
        return shape

    def place(self, request: Request) -> tuple[float, float]:
        start = time.perf_counter()
        judgement = judge(self.fleet, request, self.policy, self.policy, self.settings)
        best = judgement.best()
        placement = None if best is None else judgement.placement(best)
        decided = time.perf_counter()
        if placement is not None:
            self.change(request, placement, 1)
            self.pods.append((request, placement))
        return decided - start, time.perf_counter() - decided

    def go(self, request: Request, placement: Placement) -> None:
        self.change(request, placement, -1)

    def change(self, request: Request, placement: Placement, sign: int) -> None:
        name = placement.node
        used = dict(self.used[name])
        for uuid, charge in charges(placement, request).items():
            before = used.get(uuid, Charge())
            used[uuid] = before + charge if sign > 0 else before - charge
        self.used[name] = {uuid: charge for uuid, charge in used.items() if charge != Charge()}
        self.left[name] = self.left[name] - request.host if sign > 0 else self.left[name] + request.host
        self.enter(name)

    def enter(self, name: str) -> None:
        self.fleet.put(self.cards[name], self.used[name])
        self.fleet.set_host(name, self.left[name], _HOST)


def _node(name: str) -> NodeGpus:
    gpus = tuple(Gpu(f"{name}/{card}", card, card, "NVIDIA A100-SXM4-80GB", _MIB) for card in range(_CARDS))
    return NodeGpus(name, gpus, 1)


def _request(shape: PodShape) -> Request:
    part = Part(cards=shape.cards, whole=True)
    if shape.share < WHOLE:
        part = Part(cards=shape.cards, memory=Memory(shape.share * _MIB // WHOLE))
    host = Host(shape.cpu, shape.memory)
    return Request("u", "default/p", "aliquot", (ContainerRequest("main", part),), host=host)
