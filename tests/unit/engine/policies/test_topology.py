"""Sets of connected cards, and the policy that prefers them."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine.card_sets import best_score, best_set, connected, set_score
from aliquot.engine.policies import GPU_POLICIES, NODE_POLICIES
from aliquot.engine.state import NodeState
from aliquot.engine.topology import Wiring, allows, wiring_of
from aliquot.model import Constraints, Link, Memory, NodeGpus, Part, Topology
from aliquot.model.links import NVLINK, Pcie
from tests.factories import NODE, make_gpu
from tests.states import Cluster, groups, node_state, pod, shared, whole
from tests.unit.engine.policies.views import fleet_of, order, outcome_of, view_of

QUADS = groups((Pcie.CROSS_CPU, [range(8)]), (2 * NVLINK + Pcie.SAME_CPU, [[0, 1, 2, 3], [4, 5, 6, 7]]))
"""Eight cards, two fours that are joined by NVLinks."""
RING = {(row, (row + 1) % 8): NVLINK for row in range(8)}
"""Eight cards, each with an NVLink to the next."""


def wiring(pairs: dict[tuple[int, int], int], cards: int = 8) -> Wiring:
    return wiring_of(node_state([1024] * cards, pairs=pairs).cards.gpus)


@st.composite
def wirings(draw: st.DrawFn, most: int = 7) -> Wiring:
    cards = draw(st.integers(1, most))
    pairs = {pair: draw(st.sampled_from((0, 10, 20, 50, 110, 250))) for pair in combinations(range(cards), 2)}
    numa = draw(st.lists(st.sampled_from((None, 0, 1)), min_size=cards, max_size=cards))
    gpus = (make_gpu(row, numa=numa[row], links=_links(row, pairs)) for row in range(cards))
    return wiring_of(tuple(gpus))


def _links(row: int, pairs: dict[tuple[int, int], int]) -> tuple[Link, ...]:
    return tuple(Link(make_gpu(b).uuid, score) for (a, b), score in pairs.items() if a == row and score)


# -- reading the wiring


def test_what_one_card_tells_of_another_holds_for_both() -> None:
    gpus = (make_gpu(0, links=(Link(make_gpu(1).uuid, 150),)), make_gpu(1))
    assert wiring_of(gpus).scores == ((0, 150), (150, 0))


def test_a_link_to_a_card_that_is_not_there_is_ignored() -> None:
    assert not wiring_of((make_gpu(0, links=(Link("GPU-gone", 150),)), make_gpu(1))).known


def test_cards_that_tell_no_links_are_judged_by_their_numa_nodes() -> None:
    scores = wiring_of([make_gpu(row, numa=numa) for row, numa in enumerate((0, 0, 1, None))]).scores
    assert (scores[0][1], scores[0][2], scores[0][3]) == (Pcie.SAME_CPU, Pcie.CROSS_CPU, Pcie.UNKNOWN)


# -- sets


@pytest.mark.parametrize(
    ("pairs", "rows", "count", "best"),
    [
        pytest.param(QUADS, range(8), 4, (0, 1, 2, 3), id="a-whole-four"),
        pytest.param(QUADS, (1, 2, 3, 4, 5, 6, 7), 4, (4, 5, 6, 7), id="the-four-that-is-left"),
        pytest.param(QUADS, (0, 1, 2, 4, 5, 6, 7), 2, (0, 1), id="a-pair-from-the-broken-four"),
        pytest.param(QUADS, (3, 4, 5, 6, 7), 1, (3,), id="one-card-from-the-broken-four"),
        pytest.param({}, (2, 5, 7), 2, (2, 5), id="nothing-known-lowest-rows"),
        pytest.param(QUADS, (0, 1), 3, (), id="too-few"),
    ],
)
def test_the_best_connected_set_is_found(
    pairs: dict[tuple[int, int], int], rows: range, count: int, best: tuple[int, ...]
) -> None:
    assert best_set(wiring(pairs), tuple(rows), count) == best


@pytest.mark.parametrize(
    ("rows", "topology", "allowed"),
    [
        ((0, 1, 2), Topology.NVLINK, True),
        ((0, 2), Topology.NVLINK, False),
        ((0, 1, 7), Topology.NVLINK, True),
        ((0, 4), Topology.ANY, True),
        ((5,), Topology.NVLINK, True),
        ((5,), Topology.NUMA, True),
        ((0, 1), Topology.NUMA, False),
    ],
)
def test_nvlinks_must_lead_from_each_card_to_each_other(
    rows: tuple[int, ...], topology: Topology, allowed: bool
) -> None:
    assert allows(wiring(RING), rows, topology) is allowed


@pytest.mark.parametrize(
    ("numa", "allowed"), [((0, 0), True), ((0, 1), False), ((None, None), False), ((0, None), False)]
)
def test_one_numa_node_must_be_known_to_be_one(numa: tuple[int | None, int | None], allowed: bool) -> None:
    gpus = [make_gpu(row, numa=home) for row, home in enumerate(numa)]
    assert allows(wiring_of(gpus), (0, 1), Topology.NUMA) is allowed


@given(wirings(), st.integers(1, 5), st.sampled_from(Topology))
def test_the_best_set_is_the_best_of_all_allowed_ones(wired: Wiring, count: int, topology: Topology) -> None:
    rows = tuple(range(len(wired.scores)))
    every = [found for found in combinations(rows, count) if allows(wired, found, topology)]
    best = best_set(wired, rows, count, topology)
    assert bool(best) is bool(every)
    if every:
        assert best in every
        assert set_score(wired, best) == max(set_score(wired, found) for found in every)


@given(wirings(), st.integers(1, 5), st.sampled_from(Topology))
def test_a_grown_set_is_there_exactly_if_any_is(wired: Wiring, count: int, topology: Topology) -> None:
    rows = tuple(range(len(wired.scores)))
    grown = best_set(wired, rows, count, topology, 0)
    assert bool(grown) is bool(best_set(wired, rows, count, topology))
    assert allows(wired, grown, topology)


@given(wirings(), st.integers(1, 4), st.sampled_from(Topology), st.data())
def test_connected_cards_are_found_on_many_nodes_at_once(
    wired: Wiring, count: int, topology: Topology, data: st.DataObject
) -> None:
    cards, nodes = len(wired.scores), 5
    draw = st.lists(st.lists(st.booleans(), min_size=nodes, max_size=nodes), min_size=cards, max_size=cards)
    numbers = st.lists(st.integers(0, 9), min_size=nodes, max_size=nodes)
    possible = np.array(data.draw(draw), np.bool_)
    keys = np.array(data.draw(st.lists(numbers, min_size=cards, max_size=cards)), np.int64)
    by_links, _ = connected(wired, topology, possible, count)
    rows, found = connected(wired, topology, possible, count, keys)
    for node in range(nodes):
        here = [row for row in range(cards) if possible[row, node]]
        every = [chosen for chosen in combinations(here, count) if allows(wired, chosen, topology)]
        assert found[node] == bool(every)
        if every:
            assert tuple(sorted(rows[:, node].tolist())) in every
            assert tuple(sorted(by_links[:, node].tolist())) in every
        if every and topology is not Topology.NVLINK:
            lowest = min(sorted(keys[row, node] for row in chosen) for chosen in every)
            assert sorted(keys[row, node] for row in rows[:, node]) == lowest


def test_sets_of_sixteen_cards_are_all_looked_at() -> None:
    wired = wiring(groups((10, [range(16)]), (110, [range(0, 16, 2)])), 16)
    assert best_set(wired, tuple(range(16)), 8) == tuple(range(0, 16, 2))


HALVES = groups((20, [range(16)]), (50, [range(8), range(8, 16)]))


def test_on_many_nodes_good_sets_are_enough() -> None:
    """Every node has other cards left, so that looking at all sets of all nodes would take long."""
    states = [
        node_state(
            [1024] * 16,
            [(100, 1024 - (row == number) - (row == 0)) for row in range(16)],
            node=f"n{number}",
            pairs=HALVES,
        )
        for number in range(1, 16)
    ]
    other = [
        node_state(
            [1024] * 16,
            [(100, 1024 - (row in (number, second))) for row in range(16)],
            node=f"m{number}-{second}",
            pairs=HALVES,
        )
        for number, second in combinations(range(16), 2)
    ]
    fleet = fleet_of(*states, *other)
    ranks = GPU_POLICIES["topology"].rank(view_of(fleet, pod(whole(6))))
    assert (ranks == 0).sum(axis=0).tolist() == [6] * fleet.width


@pytest.mark.parametrize("topology", Topology)
def test_beyond_sixteen_cards_a_set_is_found_whenever_there_is_one(topology: Topology) -> None:
    gpus = [make_gpu(row, numa=row // 10, links=(Link(make_gpu(row + 1).uuid, NVLINK),)) for row in range(20)]
    best = best_set(wiring_of(gpus), tuple(range(20)), 10, topology)
    assert len(best) == 10
    assert allows(wiring_of(gpus), best, topology)
    assert best_set(wiring_of(gpus), (1, *range(0, 20, 2)), 4, Topology.NVLINK) == ()


# -- the policy


def test_several_cards_come_from_the_best_set() -> None:
    fleet = fleet_of(node_state([1024] * 8, [(50, 512), *[(100, 1024)] * 7], pairs=QUADS))
    assert order("topology", view_of(fleet, pod(whole(4))))[:4] == [4, 5, 6, 7]


def test_one_card_is_the_one_that_the_others_miss_least() -> None:
    fleet = fleet_of(node_state([1024] * 8, [(0, 0), *[(100, 1024)] * 7], pairs=QUADS))
    assert order("topology", view_of(fleet, pod(whole())))[:3] == [1, 2, 3]


def test_a_hard_wish_is_heeded_by_the_set() -> None:
    links = (Link(make_gpu(1).uuid, 4 * NVLINK),)
    gpus = (make_gpu(0, numa=0, links=links), make_gpu(1, numa=1), make_gpu(2, numa=0))
    fleet, request = fleet_of(NodeState(NodeGpus(NODE, gpus, 1), {})), pod(whole(2))
    assert order("topology", view_of(fleet, request))[:2] == [0, 1]
    same_numa = replace(request, constraints=Constraints(topology=Topology.NUMA))
    assert order("topology", view_of(fleet, same_numa))[:2] == [0, 2]


def test_nodes_are_compared_by_what_they_could_do_at_best() -> None:
    good, poor = node_state([1024] * 8, node="good", pairs=QUADS), node_state([1024] * 8, node="poor", pairs=QUADS)
    fleet = fleet_of(good, poor, node_state([1024] * 8, node="unknown"))
    view = view_of(fleet, pod(whole(4)))
    scores = NODE_POLICIES["topology"].score(outcome_of(view, [(0, 1, 2, 3), (0, 1, 4, 5), (0, 1, 2, 3)]))
    assert scores[0] == 1.0
    assert scores[1] == pytest.approx((2 * 220 + 4 * 10) / (6 * 220))
    assert scores[2] == 0.0


def test_a_single_card_goes_where_nothing_well_connected_is_broken_up() -> None:
    fleet = fleet_of(node_state([1024] * 8, node="wired", pairs=QUADS), node_state([1024], node="lone"))
    scores = NODE_POLICIES["topology"].score(outcome_of(view_of(fleet, pod(shared(10, 10)))))
    assert scores.tolist() == [0.0, 1.0]


def test_a_best_score_is_that_of_an_empty_node() -> None:
    assert best_score(wiring(QUADS), 4) == 6 * 220
    assert best_score(wiring({}), 4) == 0
    assert np.array_equal(wiring(QUADS).matrix, wiring(QUADS).matrix.T)


def test_where_all_sets_are_alike_the_next_policy_decides() -> None:
    state = node_state([1024] * 4, [(100, 1024), (100, 1024), (50, 512), (50, 512)])
    for policy in ("binpack", "topology,binpack"):
        judgement = Cluster(state, gpu_policy=policy).judge(pod(Part(cards=2, cores=10, memory=Memory(100))))
        placement = judgement.placement("n1")
        assert placement is not None
        assert sorted(part.index for part in placement.slices()) == [2, 3]
