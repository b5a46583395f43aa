"""Pods come, run on shared cards and slow each other down. docs/load.md has the model, which is fixed: the same seed
gives the same pods with the same needs under every policy."""

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from aliquot.engine import Fleet, Floats, PolicySettings, ShapeCounts, judge
from aliquot.model import Charge, ContainerRequest, Gpu, Memory, NodeGpus, Part, Placement, Request, Unit, charges

NODES, CARDS, CARD_MIB = 24, 4, 40_000
STEP = 5.0
"""Seconds of a step."""
_ARRIVALS_SECONDS = 7200.0
_GAP_SECONDS = 5.0
"""Between two arrivals, on average. About two thirds of all cards are sold then."""
_SHARES = (10, 20, 25, 50)
_RUN_SECONDS, _SHORTEST_RUN = 1200.0, 120.0
_START_SECONDS = (10.0, 60.0)
_PHASE_SECONDS = 60.0
_BUSY_PART = 0.75
_PERIOD = (10.0, 20.0)


@dataclass(frozen=True)
class Pod:
    number: int
    at: float
    share: int
    """Percent of a card that it asks for: cores and memory."""
    need: float
    """Part of a card that it uses while it is busy."""
    work: float
    """Seconds that it takes alone."""
    start: float
    """Seconds from the placement until it uses its card."""
    phase: float

    @property
    def request(self) -> Request:
        part = Part(1, self.share, Memory(self.share, Unit.PERCENT))
        return Request(f"{self.number}", f"ns/{self.number}", "aliquot", (ContainerRequest("main", part),))

    def uses(self, age: float) -> float:
        """What it would use of a card of its own at this age."""
        if age < self.start:
            return 0.0
        return self.need if ((age + self.phase) % _PHASE_SECONDS) < _BUSY_PART * _PHASE_SECONDS else 0.0


def workload(seed: int) -> list[Pod]:
    """45 % of the pods are nearly idle, 30 % use about what they asked for, 25 % use most of a card whatever they asked
    for."""
    chance = np.random.default_rng(seed)
    pods, at = list[Pod](), 0.0
    while (at := at + chance.exponential(_GAP_SECONDS)) < _ARRIVALS_SECONDS:
        share = int(chance.choice(_SHARES))
        kind = chance.random()
        need = (
            chance.uniform(0.02, 0.1)
            if kind < 0.45
            else share / 100 * chance.uniform(0.6, 1.2)
            if kind < 0.75
            else chance.uniform(0.5, 1.0)
        )
        work = max(_SHORTEST_RUN, chance.exponential(_RUN_SECONDS))
        start, phase = chance.uniform(*_START_SECONDS), chance.uniform(0, _PHASE_SECONDS)
        pods.append(Pod(len(pods), at, share, need, work, start, phase))
    return pods


@dataclass
class _Running:
    pod: Pod
    placement: Placement
    charges: dict[str, Charge]
    since: float
    row: int
    column: int
    done: float = 0.0

    @property
    def uid(self) -> str:
        return f"{self.pod.number}"


@dataclass(frozen=True)
class Result:
    slowdowns: Floats
    waits: Floats


@dataclass(frozen=True)
class Sampling:
    """`stops_at` is when all agents fall silent. `delay` is how much older than its arrival a sample is."""

    stops_at: float = np.inf
    delay: float = 0.0
    by_pod: bool = True


FRESH = Sampling()


@dataclass
class Cluster:
    policy: str
    sampling: Sampling
    seed: int
    now: float = 0.0
    running: dict[int, _Running] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fleet = Fleet()
        self._chance = np.random.default_rng(self.seed + 1_000_000)
        self._cards = {
            f"n{number:02}": NodeGpus(
                f"n{number:02}",
                tuple(Gpu(f"n{number:02}-{i}", i, i, "A100", CARD_MIB) for i in range(CARDS)),
                1,
                model="A100",
            )
            for number in range(NODES)
        }
        self._used: dict[str, dict[str, Charge]] = {name: {} for name in self._cards}
        for cards in self._cards.values():
            self.fleet.put(cards, {})
        self._block = self.fleet.blocks[0]
        self._busy = np.zeros((CARDS, NODES))
        """Seconds in which each card was busy since its node's last sample."""
        self._sampled_at = np.zeros(NODES)
        self._samples = [(float(self._chance.uniform(0, _PERIOD[1])), node) for node in self._cards]
        self._arriving: list[tuple[float, str, dict[str, tuple[float, float]], frozenset[str]]] = []
        heapq.heapify(self._samples)
        self._seen = ShapeCounts()

    def place(self, pod: Pod) -> bool:
        settings = PolicySettings(now=self.now, seen=self._seen)
        judgement = judge(self.fleet, pod.request, self.policy, self.policy, settings)
        node = judgement.best()
        placement = judgement.placement(node) if node is not None else None
        if placement is None:
            return False
        ((part,),) = placement.containers.values()
        row, column = part.index, self._block.columns[placement.node]
        taken = charges(placement, pod.request)
        self.running[pod.number] = _Running(pod, placement, taken, self.now, row, column)
        self._put(placement.node)
        return True

    def _put(self, node: str) -> None:
        here = [own for own in self.running.values() if own.placement.node == node]
        used: dict[str, Charge] = {}
        for own in here:
            for uuid, charge in own.charges.items():
                used[uuid] = used.get(uuid, Charge()) + charge
        self.fleet.put(self._cards[node], used, here)

    def step(self) -> Iterator[_Running]:
        """Let a step pass. Yields the pods that end."""
        wanted = np.zeros((CARDS, NODES))
        for own in self.running.values():
            wanted[own.row, own.column] += own.pod.uses(self.now - own.since)
        self._busy += STEP * np.minimum(1.0, wanted)
        self.now += STEP
        ended = []
        for own in self.running.values():
            if self.now - own.since > own.pod.start:
                own.done += STEP / max(1.0, float(wanted[own.row, own.column]))
                if own.done >= own.pod.work:
                    ended.append(own)
        for own in ended:
            del self.running[own.pod.number]
        for node in sorted({own.placement.node for own in ended}):
            self._put(node)
        self._sample()
        yield from ended

    def _sample(self) -> None:
        while self._samples[0][0] <= self.now:
            _, node = heapq.heappop(self._samples)
            heapq.heappush(self._samples, (self.now + float(self._chance.uniform(*_PERIOD)), node))
            column = self._block.columns[node]
            passed = self.now - self._sampled_at[column]
            if passed > 0 and self.now < self.sampling.stops_at:
                shares = self._busy[:, column] / passed
                busy = {f"{node}-{row}": (float(shares[row]), self.now) for row in range(CARDS)}
                working = frozenset(
                    own.uid
                    for own in self.running.values()
                    if self.sampling.by_pod and own.placement.node == node and self.now - own.since >= own.pod.start
                )
                heapq.heappush(self._arriving, (self.now + self.sampling.delay, node, busy, working))
            self._busy[:, column], self._sampled_at[column] = 0.0, self.now
        while self._arriving and self._arriving[0][0] <= self.now:
            at, node, busy, working = heapq.heappop(self._arriving)
            self.fleet.set_load(node, {uuid: (load, at) for uuid, (load, _) in busy.items()}, working)


def run(policy: str, seed: int, sampling: Sampling = FRESH) -> Result:
    """Until every pod has ended. Pods that do not fit wait in their order."""
    cluster, queue = Cluster(policy, sampling, seed), deque(workload(seed))
    slowdowns, waits = list[float](), list[float]()
    while queue or cluster.running:
        while queue and queue[0].at <= cluster.now and cluster.place(queue[0]):
            waits.append(cluster.now - queue.popleft().at)
        for own in cluster.step():
            took = cluster.now - own.since - own.pod.start
            slowdowns.append(max(1.0, took / own.pod.work))
    return Result(np.array(slowdowns), np.array(waits))
