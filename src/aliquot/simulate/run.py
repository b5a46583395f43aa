"""One run: pods arrive in an order, and the engine places each of them, or it fails."""

import heapq
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from aliquot.engine import Bools, Fleet, PolicySettings, ShapeCounts, judge
from aliquot.engine.gauges import Expected, Gauge, gauge
from aliquot.engine.workload import WHOLE
from aliquot.model import Charge, Host, charges
from aliquot.simulate.demand import Demands, taken_of
from aliquot.simulate.policy_names import PolicyPair
from aliquot.simulate.results import Measures, ModelResult, Point, RunResult
from aliquot.simulate.scenario import Order, SimulatedNode, SimulatedPod, World
from aliquot.simulate.workload import expected, known_workload


@dataclass(frozen=True)
class _Held:
    """What a placed pod holds."""

    node: str
    charges: dict[str, Charge]
    host: Host


class SimulatedCluster:
    """The cluster as the engine sees it, and the pods that it has placed."""

    def __init__(self, nodes: Sequence[SimulatedNode], ranks: Sequence[int] = ()) -> None:
        """Of equally good nodes the one with the lowest rank wins; without ranks, the one with the smallest name."""
        self.fleet = Fleet()
        self.taken = 0
        """Thousandths of cards."""
        self.peaks: dict[str, tuple[int, int]] = {}
        """The most that a node had taken at any time: thousandths of cards, and of cores."""
        self._left = {node.name: node.host - node.taken for node in nodes}
        self._nodes = {node.name: node for node in nodes}
        self._held: dict[int, _Held] = {}
        self._selected: dict[tuple[tuple[str, str], ...], Bools] = {}
        for node in nodes:
            taken = taken_of(node.cards, node.used)
            self.taken += taken
            self.peaks[node.name] = taken, node.taken.cpu
            self.fleet.put(node.cards, node.used)
            self.fleet.set_host(node.name, self._left[node.name], node.host)
        self._names = self.fleet.names
        rank_of = {node.name: rank for node, rank in zip(nodes, ranks, strict=True)} if ranks else {}
        self._ranks = np.array([rank_of[name] for name in self._names]) if ranks else self.fleet.name_order

    def place(self, number: int, pod: SimulatedPod, policy: PolicyPair, settings: PolicySettings) -> bool:
        """Place a pod under a number of its own. Returns whether it fits."""
        request = replace(pod.request, uid=str(number))
        (columns,) = np.nonzero(self._room(pod))
        if not len(columns):
            return False
        judgement = judge(self.fleet, request, policy.gpu, policy.node, settings)
        columns = columns[judgement.fits[columns]]
        if not len(columns):
            return False
        scores = judgement.scores_at(columns)
        best = columns[scores == scores.max()]
        node = self._names[int(best[self._ranks[best].argmin()])]
        placement = judgement.placement(node)
        assert placement is not None, "the node fits"
        held = _Held(node, charges(placement, request), request.host)
        self._held[number] = held
        self._change(held, +1)
        return True

    def release(self, number: int) -> None:
        """A placed pod leaves."""
        self._change(self._held.pop(number), -1)

    def _room(self, pod: SimulatedPod) -> Bools:
        """Columns with enough CPU and memory, and with the labels that the pod selects."""
        host, blocks = pod.request.host, self.fleet.blocks
        room = [(block.host_cpu >= host.cpu) & (block.host_memory >= host.memory) for block in blocks]
        found = room[0] if len(room) == 1 else np.concatenate(room)
        return found & self._with_labels(tuple(sorted(pod.selector.items()))) if pod.selector else found

    def _with_labels(self, wanted: tuple[tuple[str, str], ...]) -> Bools:
        if wanted not in self._selected:
            labels = [self._nodes[name].labels.items() if name else {}.items() for name in self._names]
            self._selected[wanted] = np.array([set(wanted) <= own for own in labels], np.bool_)
        return self._selected[wanted]

    def _change(self, held: _Held, sign: int) -> None:
        name, node = held.node, self._nodes[held.node]
        state = self.fleet.state(name)
        assert state is not None, "nodes never go"
        if held.charges:
            after = state.plus(held.charges) if sign > 0 else state.minus(held.charges)
            self.taken += taken_of(after.cards, after.used) - taken_of(state.cards, state.used)
            self.fleet.put(after.cards, after.used)
            state = after
        left = self._left[name]
        self._left[name] = left = left - held.host if sign > 0 else left + held.host
        self.fleet.set_host(name, left, node.host)
        if sign > 0:
            cards, cpu = self.peaks[name]
            now = taken_of(state.cards, state.used), node.host.cpu - left.cpu
            self.peaks[name] = max(cards, now[0]), max(cpu, now[1])


def run(
    world: World,
    order: Order,
    policy: PolicyPair,
    *,
    know_workload: bool = False,
    may_fail: Container[int] | None = None,
) -> RunResult:
    """Replay an order. With `know_workload` the policy knows how common each shape of the list is; without, it learns
    that from the pods that come, as in the server. If only these arrivals `may_fail`, the run ends when another
    does."""
    began = perf_counter()
    cluster, counts, demands = SimulatedCluster(world.nodes, order.ranks), ShapeCounts(), Demands(world.nodes)
    settings = PolicySettings(workload=known_workload(world.pods)) if know_workload else PolicySettings(seen=counts)
    record = _Record(cluster, world.capacity, expected(world.pods))
    leaving: list[tuple[float, int]] = []
    for number, arrival in enumerate(order.arrivals):
        while leaving and leaving[0][0] <= arrival.at:
            cluster.release(heapq.heappop(leaving)[1])
            record.left += 1
        pod = world.pods[arrival.pod]
        if pod.request.containers:
            counts.add(pod.request)
        fits = cluster.place(number, pod, policy, settings)
        if fits and arrival.leaves is not None:
            heapq.heappush(leaving, (arrival.leaves, number))
        record.arrived(number, pod, demands.of(pod), fits)
        if not fits and may_fail is not None and number not in may_fail:
            break
    return record.result(policy.name, order.name, perf_counter() - began)


class _Record:
    """What happened so far. Between two whole percents of arrived cards, the allocation is the mean after each arrival,
    as FGD's authors report it; the rest is measured once, at the first arrival."""

    def __init__(self, cluster: SimulatedCluster, capacity: int, expected: Expected) -> None:
        self._cluster, self._capacity, self._expected = cluster, capacity, expected
        self._arrivals = self._asked = self._placed = 0
        self.left = 0
        self._failed: list[int] = []
        self._failed_gpu = self._failed_multi = 0
        self._bins: dict[int, list[int]] = {}
        self._gauges: dict[int, Gauge] = {}

    def arrived(self, number: int, pod: SimulatedPod, size: int, fits: bool) -> None:
        self._arrivals += 1
        self._asked += size
        if fits:
            self._placed += size
        else:
            self._failed.append(number)
            self._failed_gpu += bool(pod.cards)
            self._failed_multi += pod.cards > 1
        percent = round(self._asked / (self._capacity * WHOLE) * 100)
        if percent not in self._bins:
            self._gauges[percent] = gauge(self._cluster.fleet, self._expected)
        self._bins.setdefault(percent, []).append(self._cluster.taken)

    def result(self, policy: str, order: str, seconds: float) -> RunResult:
        last = gauge(self._cluster.fleet, self._expected)
        return RunResult(
            policy=policy,
            order=order,
            cards=self._capacity,
            arrivals=self._arrivals,
            arrived=self._asked / WHOLE,
            placed=self._placed / WHOLE,
            allocated=self._cluster.taken / WHOLE,
            left=self.left,
            failed=tuple(self._failed),
            failed_gpu=self._failed_gpu,
            failed_multi=self._failed_multi,
            points=tuple(self._point(percent, taken) for percent, taken in sorted(self._bins.items())),
            last=self._measures(last),
            models=tuple(
                ModelResult(each.model, each.cards, each.cards - each.idle / WHOLE, each.stranded / WHOLE)
                for each in last.models
            ),
            seconds=seconds,
            peaks=self._cluster.peaks,
        )

    def _point(self, percent: int, taken: list[int]) -> Point:
        allocation = sum(taken) / len(taken) / (self._capacity * WHOLE) * 100
        return Point(percent, allocation, self._measures(self._gauges[percent]))

    def _measures(self, own: Gauge) -> Measures:
        return Measures(own.idle / WHOLE, own.fragments / WHOLE, own.stranded / WHOLE, own.starved / WHOLE)
