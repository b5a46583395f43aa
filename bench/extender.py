"""filter and prioritize of one pod: what they cost our server, all told, and how long the scheduler waits.

The whole server runs, with a half-full cluster in its cluster state, beside a handler in Go that decodes the same
bodies into Kubernetes' own types and decides nothing. prioritize is sent the nodes that passed filter, as
kube-scheduler does it. Turns alternate; each figure is the median of the turns, with the least and the most of them
beside it.
"""

import random
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench.extending import calling, half_full, processes
from bench.extending.processes import Served
from bench.measuring import Row, in_turns

PEER = "a Go net/http handler that decodes the same bodies into the full Kubernetes types, and no more"
RATIO = "ratio = ours / peer per filter + prioritize, so below 1 ours needs less"

_VERBS = ("filter", "prioritize")
_CLIENTS = (1, 8)
_PODS = 3
"""That are asked about in turn: no two calls of filter that follow each other are about the same."""
_ROUNDS = 9
_SECONDS_OF_A_TURN = 0.4


@dataclass(frozen=True)
class Size:
    nodes: Sequence[int] = (100, 1000, 5000)
    rounds: int = _ROUNDS
    seconds: float = _SECONDS_OF_A_TURN


Bodies = Sequence[Sequence[bytes]]
"""For each pod, that of filter and that of prioritize."""

QUICK = Size((10,), rounds=2, seconds=0.01)


@dataclass(frozen=True)
class Turn:
    """Per filter + prioritize: milliseconds of CPU, and until the answers were there."""

    cpu: float
    latency: float


def run(*, quick: bool = False) -> Iterable[Row]:
    size = QUICK if quick else Size()
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-") as made:
        folder = Path(made)
        with processes.go_peer(folder) as peer:
            for nodes in size.nodes:
                with server(nodes, folder / str(nodes)) as ours:
                    yield from _compared(ours, peer, nodes, size)


@contextmanager
def server(nodes: int, folder: Path) -> Iterator[Served]:
    """Ours, which knows a cluster of so many nodes."""
    folder.mkdir()
    with processes.cluster(nodes, folder) as kubeconfig, processes.ours(kubeconfig, folder) as ours:
        yield ours


def _compared(ours: Served, peer: Served, nodes: int, size: Size) -> Iterator[Row]:
    whole = half_full.nodes(nodes)
    random.Random(1).shuffle(whole)  # many workers of kube-scheduler find them, in no order
    for mode, bodies in (("names", by_name(ours, whole)), ("whole nodes", by_node(ours, whole))):
        for clients in _CLIENTS:
            mine, theirs = measured([ours, peer], bodies, clients, size)
            case = f"{nodes} nodes, {mode}, {clients} client{'s' if clients > 1 else ''}"
            yield in_turns(f"{case}: CPU", [turn.cpu for turn in mine], [turn.cpu for turn in theirs], "ms CPU")
            yield in_turns(f"{case}: latency", [turn.latency for turn in mine], [turn.latency for turn in theirs], "ms")


def by_name(ours: Served, nodes: list[dict[str, Any]]) -> Bodies:
    """What a scheduler with nodeCacheCapable sends."""
    names = [node["metadata"]["name"] for node in nodes]
    passed = _asked(ours, {"Pod": half_full.pending(0), "Nodes": None, "NodeNames": names})["NodeNames"]
    if not 0 < len(passed) < len(names):
        raise AssertionError(f"{len(passed)} of {len(names)} nodes passed")
    return [
        [msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": some}) for some in (names, passed)]
        for pod in map(half_full.pending, range(_PODS))
    ]


def by_node(ours: Served, nodes: list[dict[str, Any]]) -> Bodies:
    """The same of one without."""
    all_of_them = {"metadata": {}, "items": nodes}
    passed = _asked(ours, {"Pod": half_full.pending(0), "Nodes": all_of_them, "NodeNames": None})["Nodes"]
    return [
        [msgspec.json.encode({"Pod": pod, "Nodes": some, "NodeNames": None}) for some in (all_of_them, passed)]
        for pod in map(half_full.pending, range(_PODS))
    ]


def _asked(served: Served, call: dict[str, Any]) -> Any:
    caller = calling.Caller(served.port)
    try:
        return msgspec.json.decode(caller.post(calling.request(f"{served.prefix}/filter", msgspec.json.encode(call))))
    finally:
        caller.close()


def measured(servers: Sequence[Served], bodies: Bodies, clients: int, size: Size) -> list[list[Turn]]:
    """The turns of each server, made in turns."""
    with ExitStack() as stack:
        sides = [_Side(each, bodies, clients, stack) for each in servers]
        counts = [max(1, round(1000 * size.seconds / side.turn(1).latency / clients)) for side in sides]
        turns = [[side.turn(count) for side, count in zip(sides, counts, strict=True)] for _ in range(size.rounds)]
    return [list(of_side) for of_side in zip(*turns, strict=True)]


class _Side:
    def __init__(self, served: Served, bodies: Bodies, clients: int, stack: ExitStack) -> None:
        self._served = served
        self._callers = [calling.Caller(served.port) for _ in range(clients)]
        for caller in self._callers:
            stack.callback(caller.close)
        self._requests = [
            [calling.request(f"{served.prefix}/{verb}", body) for verb, body in zip(_VERBS, of_pod, strict=True)]
            for of_pod in bodies
        ]

    def turn(self, count: int) -> Turn:
        before = self._served.cpu()
        taken = calling.together(self._callers, self._requests, count)
        spent = self._served.cpu() - before
        return Turn(1000 * spent / len(taken), 1000 * statistics.median(taken))
