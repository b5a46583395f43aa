"""Nodes as the engine sees them, and requests: as short as tables of cases need."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from aliquot.engine import Fleet, Judgement, judge
from aliquot.engine.state import NodeState
from aliquot.model import CORES, Charge, ContainerRequest, Gpu, Link, Memory, NodeGpus, Part, Request, Unit, charges
from tests.factories import NODE, make_gpu, make_uid

BLOCK = 256
"""MiB of a block of tencent.com/vcuda-memory."""


def node_state(
    sizes: Sequence[int],
    left: Sequence[tuple[int, int]] | None = None,
    *,
    node: str = NODE,
    unit_mib: int = 1,
    pairs: Mapping[tuple[int, int], int] | None = None,
) -> NodeState:
    """Cards of these sizes in MiB, with (cores, MiB) left on each; pair scores where cards know each other."""
    gpus = tuple(
        make_gpu(index, node, mib=mib, links=_links(index, node, pairs or {})) for index, mib in enumerate(sizes)
    )
    used = {
        gpu.uuid: Charge(CORES - cores, gpu.mib - mib, shares=1)
        for gpu, (cores, mib) in zip(gpus, left or (), strict=left is not None)
        if (cores, mib) != (CORES, gpu.mib)
    }
    return NodeState(NodeGpus(node, gpus, unit_mib), used)


def _links(index: int, node: str, pairs: Mapping[tuple[int, int], int]) -> tuple[Link, ...]:
    near = {other: score for pair, score in pairs.items() if index in pair for other in pair if other != index}
    return tuple(Link(make_gpu(other, node).uuid, score) for other, score in near.items())


def groups(*levels: tuple[int, Sequence[Sequence[int]]]) -> dict[tuple[int, int], int]:
    """Pair scores of cards that are joined in groups, the widest first: `(score, [[0, 1], [2, 3]])`."""
    return {pair: score for score, joined in levels for group in joined for pair in combinations(group, 2)}


def shared(cores: int, mib: int, unit: Unit = Unit.MIB) -> Part:
    return Part(cores=cores, memory=Memory(mib, unit))


def percent(amount: int) -> Part:
    return shared(amount, amount, Unit.PERCENT)


def whole(cards: int = 1) -> Part:
    return Part(cards=cards, whole=True)


def pod(*parts: Part, uid: str = "") -> Request:
    """One container per part: c0, c1, ..."""
    containers = tuple(ContainerRequest(f"c{place}", part) for place, part in enumerate(parts))
    return Request(uid or make_uid(), "test-ns/p", "aliquot", containers)


def indexes(arrangement: Mapping[str, tuple[Gpu, ...]] | None) -> list[tuple[int, ...]] | None:
    """The chosen cards of each container, by index."""
    if arrangement is None:
        return None
    return [tuple(gpu.index for gpu in gpus) for _, gpus in sorted(arrangement.items())]


class Cluster:
    """Nodes on which pods come and go, placed by the engine."""

    def __init__(self, *states: NodeState, gpu_policy: str = "binpack", node_policy: str = "binpack") -> None:
        self.fleet = Fleet()
        self._policies = gpu_policy, node_policy
        self._held: dict[str, tuple[str, Mapping[str, Charge]]] = {}
        for state in states:
            self.fleet.put(state.cards, state.used)

    def judge(self, request: Request) -> Judgement:
        return judge(self.fleet, request, *self._policies)

    def put(self, name: str, request: Request) -> tuple[str, list[tuple[int, ...]]] | None:
        """The node and each container's cards by index; None if it fits nowhere."""
        judgement = self.judge(request)
        node = judgement.best()
        placement = judgement.placement(node) if node else None
        if node is None or placement is None:
            return None
        self._held[name] = node, charges(placement, request)
        state = self.state(node).plus(self._held[name][1])
        self.fleet.put(state.cards, state.used)
        return node, [tuple(part.index for part in placement.containers[c.name]) for c in request.containers]

    def remove(self, name: str) -> None:
        node, held = self._held.pop(name)
        state = self.state(node).minus(held)
        self.fleet.put(state.cards, state.used)

    def state(self, node: str) -> NodeState:
        state = self.fleet.state(node)
        assert state is not None
        return state
