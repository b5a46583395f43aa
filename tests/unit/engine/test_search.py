"""The search for a pod's cards on one node: it misses no way, prefers what the policy prefers, and says when it gave
up."""

import random
from collections.abc import Sequence

import pytest

from aliquot.engine import Fleet, judge
from aliquot.engine.one_node.puzzle import Puzzle, puzzle_of
from aliquot.engine.one_node.search import SearchResult, arrange, search, works
from aliquot.engine.state import NodeState
from aliquot.model import Charge, Constraints, ContainerRequest, Life, Link, Memory, NodeGpus, Part, Request, Topology
from tests.factories import make_gpu
from tests.states import groups, indexes, node_state, pod, shared, whole

# -- what fits and what does not


def with_lives(*containers: tuple[Life, Part]) -> Request:
    named = (ContainerRequest(f"c{place}", part, life) for place, (life, part) in enumerate(containers))
    return Request("u", "default/p", "aliquot", tuple(named))


@pytest.mark.parametrize(
    ("state", "request_", "chosen"),
    [
        pytest.param(
            node_state([100] * 2, [(50, 50), (60, 60)]),
            pod(shared(30, 30), shared(30, 30), shared(50, 50)),
            [(1,), (1,), (0,)],
            id="the worst card first would block it",
        ),
        pytest.param(
            node_state([100] * 2, [(80, 80), (90, 90)]),
            pod(shared(30, 30), shared(30, 30), shared(50, 50), shared(60, 60)),
            [(0,), (1,), (0,), (1,)],
            id="the fullest card first would block it",
        ),
        pytest.param(
            node_state([100, 100], [(100, 10), (10, 100)]),
            pod(shared(10, 60), shared(60, 10)),
            [(1,), (0,)],
            id="each measure on the card that has it",
        ),
        pytest.param(
            node_state([100] * 3, [(100, 100), (50, 50), (50, 50)]),
            pod(Part(cards=2, memory=Memory(50), cores=50), whole()),
            [(1, 2), (0,)],
            id="the whole card is left for who needs it",
        ),
        pytest.param(node_state([100]), pod(Part(cards=2, memory=Memory(1))), None, id="two cards are two cards"),
        pytest.param(node_state([]), pod(whole()), None, id="no cards"),
        pytest.param(
            node_state([100] * 2), pod(shared(0, 60), shared(0, 60), shared(0, 60)), None, id="three do not fit on two"
        ),
        pytest.param(
            node_state([100]),
            pod(shared(100, 50), shared(0, 50)),
            [(0,), (0,)],
            id="one takes the cores, one only memory",
        ),
    ],
)
def test_a_pod_is_arranged(state: NodeState, request_: Request, chosen: list[tuple[int, ...]] | None) -> None:
    assert indexes(arrange(state, request_)) == chosen


@pytest.mark.parametrize(
    ("state", "request_", "chosen"),
    [
        pytest.param(
            node_state([100]),
            with_lives((Life.INIT, shared(0, 100)), (Life.MAIN, shared(0, 100))),
            [(0,), (0,)],
            id="an init container is gone when the main one starts",
        ),
        pytest.param(
            node_state([100]),
            with_lives((Life.SIDECAR, shared(0, 10)), (Life.INIT, shared(0, 100)), (Life.MAIN, shared(0, 50))),
            None,
            id="a sidecar that starts before it is not",
        ),
        pytest.param(
            node_state([100]),
            with_lives((Life.INIT, shared(0, 100)), (Life.SIDECAR, shared(0, 10)), (Life.MAIN, shared(0, 50))),
            [(0,), (0,), (0,)],
            id="one that starts after it is not there yet",
        ),
        pytest.param(
            node_state([100] * 3, [(100, 50), (100, 100), (100, 100)]),
            with_lives((Life.INIT, shared(0, 40)), (Life.MAIN, shared(0, 60))),
            [(1,), (1,)],
            id="an init container gets the card that the pod pays for anyway",
        ),
        pytest.param(
            node_state([100] * 2),
            with_lives((Life.SIDECAR, shared(0, 50)), (Life.INIT, Part(cards=2, memory=Memory(60)))),
            None,
            id="an init container of two cards needs room beside the sidecar on both",
        ),
    ],
)
def test_init_containers_count_as_max_and_sidecars_as_sum(
    state: NodeState, request_: Request, chosen: list[tuple[int, ...]] | None
) -> None:
    assert indexes(arrange(state, request_)) == chosen


def test_containers_that_share_their_cards_need_room_for_all_on_each() -> None:
    request = Request("u", "default/p", "gpushare", pod(shared(0, 40), shared(0, 40)).containers, together=True)
    assert indexes(arrange(node_state([50, 80]), request)) == [(1,), (1,)]
    assert arrange(node_state([50, 50]), request) is None


def test_low_ranks_are_preferred_and_equal_ones_go_by_row() -> None:
    state = node_state([100] * 4)
    request = pod(Part(cards=2, memory=Memory(10)))
    assert indexes(arrange(state, request)) == [(0, 1)]
    assert indexes(arrange(state, request, rank=lambda gpu: -gpu.index)) == [(2, 3)]
    assert indexes(arrange(state, request, rank=lambda gpu: gpu.index % 2)) == [(0, 2)]


def test_a_card_shared_by_mps_takes_slots_and_nothing_else() -> None:
    gpus = tuple(make_gpu(index, mib=100, slots=4) for index in range(2))
    state = NodeState(NodeGpus("n1", gpus, 1), {gpus[0].uuid: Charge(25, 25, slots=1)})
    slots = Part(slots=1, memory=Memory(10))
    assert indexes(arrange(state, pod(slots, shared(0, 10)))) == [(0,), (1,)]
    assert arrange(state, pod(slots, shared(0, 10), whole())) is None


# -- topology


def test_cards_of_one_container_lie_on_one_numa_node() -> None:
    gpus = tuple(make_gpu(index, mib=100, numa=index % 2) for index in range(4))
    state = NodeState(NodeGpus("n1", gpus, 1), {})
    near = Constraints(topology=Topology.NUMA)
    two = Part(cards=2, memory=Memory(60))
    request = Request("u", "default/p", "aliquot", pod(two, two).containers, constraints=near)
    assert indexes(arrange(state, request)) == [(0, 2), (1, 3)]
    three = Request("u", "default/p", "aliquot", pod(Part(cards=3, memory=Memory(60))).containers, constraints=near)
    assert arrange(state, three) is None


def test_cards_of_one_container_are_joined_by_nvlink() -> None:
    state = node_state([100] * 4, pairs=groups((150, [[0, 3], [1, 2]])))
    joined = Constraints(topology=Topology.NVLINK)
    two = Part(cards=2, memory=Memory(60))
    request = Request("u", "default/p", "aliquot", pod(two, two).containers, constraints=joined)
    assert sorted(indexes(arrange(state, request)) or []) == [(0, 3), (1, 2)]
    three = Request("u", "default/p", "aliquot", pod(two, two, two).containers, constraints=joined)
    assert arrange(state, three) is None


def test_links_that_only_one_side_tells_of_join() -> None:
    gpus = (make_gpu(0, mib=100, links=(Link(make_gpu(1).uuid, 150),)), make_gpu(1, mib=100))
    state = NodeState(NodeGpus("n1", gpus, 1), {})
    request = pod(Part(cards=2, memory=Memory(1)))
    joined = Request("u", "p", "aliquot", request.containers, constraints=Constraints(topology=Topology.NVLINK))
    assert indexes(arrange(state, joined)) == [(0, 1)]


def test_containers_that_share_connected_cards_each_get_connected_ones() -> None:
    """The first and the second card are only joined by the third."""
    state = node_state([100] * 3, pairs=groups((150, [[0, 2], [1, 2]])))
    containers = pod(Part(cards=3, memory=Memory(10)), Part(cards=2, memory=Memory(10))).containers
    request = Request(
        "u", "p", "gpushare", containers, together=True, constraints=Constraints(topology=Topology.NVLINK)
    )
    assert indexes(arrange(state, request)) == [(0, 1, 2), (0, 2)]
    fleet = Fleet()
    fleet.put(state.cards, state.used)
    placement = judge(fleet, request).placement("n1")
    assert placement is not None
    assert [[part.index for part in slices] for slices in placement.containers.values()] == [[0, 1, 2], [0, 2]]


@pytest.mark.parametrize("numa_nodes", [1, 2, 4])
def test_eight_containers_of_cards_of_one_numa_node_are_packed_on_sixteen_cards(numa_nodes: int) -> None:
    """Each pair of containers fills its cards to the last MiB."""
    chance = random.Random(numa_nodes)
    per_node = 16 // numa_nodes
    sizes = [0] * 16
    parts = []
    for place in range(8):
        need, home = chance.randrange(1000, 9000), place % numa_nodes
        cards = chance.randint(2, min(8, per_node))
        parts.append(Part(cards=cards, memory=Memory(need)))
        for card in chance.sample(range(per_node), cards):
            sizes[home * per_node + card] += need
    gpus = tuple(make_gpu(index, mib=size, numa=index // per_node) for index, size in enumerate(sizes))
    state = NodeState(NodeGpus("n1", gpus, 1), {})
    request = Request("u", "p", "aliquot", pod(*parts).containers, constraints=Constraints(topology=Topology.NUMA))
    found = search(puzzle_of(state, request))
    assert found.cards is not None
    assert works(puzzle_of(state, request), found.cards)


# -- the bound: 16 different cards, 8 different containers of up to 8 cards each

Sizes = list[tuple[int, int, int]]


def planted(seed: int, *, slack: int = 0, memory_only: bool = False) -> tuple[Sizes, list[int], Sizes]:
    """Free room that a hidden packing fills to the last unit, or nearly; wants and needs of the containers."""
    chance = random.Random(seed)
    wants = [chance.randint(3, 8) for _ in range(8)]
    needs = [(chance.randrange(1, 30000), 0 if memory_only else chance.randrange(1, 20), 0) for _ in range(8)]
    mib, cores = [slack] * 16, [0] * 16
    for want, need in zip(wants, needs, strict=True):
        for card in chance.sample(range(16), want):
            mib[card] += need[0]
            cores[card] += need[1]
    return [(m, c or 100, 0) for m, c in zip(mib, cores, strict=True)], wants, needs


def puzzle(free: Sizes, wants: list[int], needs: Sizes) -> Puzzle:
    def fits(need: Sequence[int], card: Sequence[int]) -> bool:
        return all(n <= f for n, f in zip(need, card, strict=True))

    allowed = [sum(1 << row for row, card in enumerate(free) if fits(need, card)) for need in needs]
    return Puzzle(free, wants, [[need] * len(free) for need in needs], allowed, [Life.MAIN] * len(wants))


@pytest.mark.parametrize("memory_only", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_planted_packing_without_slack_is_found(seed: int, memory_only: bool) -> None:
    tight = puzzle(*planted(seed, memory_only=memory_only))
    found = search(tight)
    assert found.cards is not None
    assert works(tight, found.cards)


@pytest.mark.parametrize("seed", range(8))
def test_a_packing_that_misses_by_one_unit_is_refused_for_certain(seed: int) -> None:
    free, wants, needs = planted(seed, memory_only=True)
    fullest = max(range(16), key=lambda row: free[row][0])
    free[fullest] = (free[fullest][0] - 1, *free[fullest][1:])
    assert search(puzzle(free, wants, needs)) == SearchResult(None, limited=False)


@pytest.mark.parametrize("seed", range(4))
def test_cards_that_must_each_take_as_many_containers_as_they_can_are_filled(seed: int) -> None:
    """Four of eight nearly equal parts on each of sixteen equal cards, 3 % to spare: no bound shows the way."""
    chance = random.Random(seed)
    needs = [(chance.randrange(100, 130), 0, 0) for _ in range(8)]
    size = sum(need[0] for need in needs) * 8 * 103 // 1600
    crowd = puzzle([(size, 100, 0)] * 16, [8] * 8, needs)
    found = search(crowd)
    assert found.cards is not None
    assert works(crowd, found.cards)


def test_parts_that_fit_only_by_total_size_are_refused_for_certain() -> None:
    """Three of eight different, nearly equal parts fit on no card, though all cards together have room for all."""
    needs = [(3400 + 10 * place, 0, 0) for place in range(8)]
    assert search(puzzle([(10100, 100, 0)] * 16, [5] * 8, needs)) == SearchResult(None, limited=False)


def test_beyond_the_bound_a_refusal_says_that_it_gave_up() -> None:
    chance = random.Random(1)
    needs = [(chance.randrange(5001, 6000), chance.randrange(1, 9), 0) for _ in range(40)]
    found = search(puzzle([(10000, 100, 0)] * 39, [1] * 40, needs))
    assert found == SearchResult(None, limited=True)


def test_beyond_the_bound_what_greed_finds_is_still_found() -> None:
    crowd = puzzle([(10000, 100, 0)] * 24, [2] * 20, [(1000 + place, 1, 0) for place in range(20)])
    found = search(crowd)
    assert found.cards is not None
    assert works(crowd, found.cards)
