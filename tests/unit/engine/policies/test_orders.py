"""Which card and which node each policy prefers."""

from dataclasses import replace

import numpy as np
import pytest

from aliquot.engine.block import Block
from aliquot.engine.policies import GPU_POLICIES, NODE_POLICIES
from aliquot.engine.policies.fgd import fragments
from aliquot.engine.shape_counts import ShapeCounts
from aliquot.engine.view import PolicySettings
from aliquot.engine.workload import COMMON, CardModel, PodShape, Workload
from aliquot.errors import BadConfig
from aliquot.model import Charge, Constraints, Host, ModelConstraint, Part
from tests.factories import make_gpu
from tests.states import node_state, pod, shared, whole
from tests.unit.engine.policies.views import fleet_of, order, outcome_of, view_of

SIZE = 1000
LEFT = [(100, 1000), (40, 700), (70, 400), (90, 900)]
"""Cores and MiB left on four cards."""


@pytest.mark.parametrize(
    ("policy", "part", "rows"),
    [
        pytest.param("binpack", shared(0, 100), [2, 1, 3, 0], id="binpack-memory"),
        pytest.param("binpack", shared(10, 0), [1, 2, 3, 0], id="binpack-cores"),
        pytest.param("binpack", shared(10, 100), [1, 2, 3, 0], id="binpack-both"),
        pytest.param("binpack", shared(0, 800), [3, 0], id="binpack-only-what-fits"),
        pytest.param("spread", shared(0, 100), [0, 3, 1, 2], id="spread-memory"),
        pytest.param("spread", shared(10, 0), [0, 3, 2, 1], id="spread-cores"),
        pytest.param("spread", shared(10, 100), [0, 3, 1, 2], id="spread-both-equal-ones-by-row"),
        pytest.param("tightest", shared(10, 100), [2, 1, 3, 0], id="tightest"),
        pytest.param("admission", shared(10, 100), [1, 2, 3, 0], id="admission"),
        pytest.param("keti", shared(0, 100), [0, 3, 1, 2], id="keti"),
        pytest.param("elastic-0.1-binpack", shared(10, 100), [1, 2, 3, 0], id="elastic-0.1-binpack"),
        pytest.param("elastic-0.1-spread", shared(10, 100), [0, 3, 1, 2], id="elastic-0.1-spread"),
        pytest.param("elastic-0.3-binpack", shared(10, 100), [1, 2, 3, 0], id="elastic-0.3-binpack"),
        pytest.param("elastic-0.3-spread", shared(10, 100), [0, 3, 1, 2], id="elastic-0.3-spread"),
        pytest.param("elastic-spread", shared(10, 100), [3, 2, 1, 0], id="elastic-spread"),
        pytest.param("gpu-manager", shared(10, 100), [1, 2, 3, 0], id="gpu-manager"),
    ],
)
def test_cards_are_preferred_in_this_order(policy: str, part: Part, rows: list[int]) -> None:
    assert order(policy, view_of(fleet_of(node_state([SIZE] * 4, LEFT)), pod(part))) == rows


@pytest.mark.parametrize("policy", ["binpack", "tightest", "admission", "gpu-manager"])
def test_equal_cards_are_taken_by_their_row(policy: str) -> None:
    assert order(policy, view_of(fleet_of(node_state([SIZE] * 4)), pod(shared(10, 100)))) == [0, 1, 2, 3]


def test_a_whole_card_is_the_smallest_that_is_free_for_binpack() -> None:
    assert order("binpack", view_of(fleet_of(node_state([2000, 1000, 3000])), pod(whole()))) == [1, 0, 2]


def nodes() -> Block:
    """Nearly full, half full and empty."""
    return fleet_of(
        node_state([SIZE] * 2, [(20, 200), (20, 200)], node="full"),
        node_state([SIZE] * 2, [(50, 500), (50, 500)], node="half"),
        node_state([SIZE] * 2, node="idle"),
    )


@pytest.mark.parametrize(
    ("policy", "best"),
    [
        ("binpack", [0, 1, 2]),
        ("spread", [2, 1, 0]),
        ("admission", [0, 1, 2]),
        ("keti", [2, 1, 0]),
        ("elastic-0.1-binpack", [0, 1, 2]),
        ("elastic-0.1-spread", [2, 1, 0]),
        ("elastic-0.3-binpack", [0, 1, 2]),
        ("elastic-0.3-spread", [2, 1, 0]),
        ("elastic-spread", [0, 1, 2]),
    ],
)
@pytest.mark.parametrize("part", [shared(10, 100), shared(0, 100), shared(10, 0)], ids=["both", "memory", "cores"])
def test_nodes_are_preferred_in_this_order(policy: str, best: list[int], part: Part) -> None:
    scores = NODE_POLICIES[policy].score(outcome_of(view_of(nodes(), pod(part))))
    assert sorted(range(3), key=lambda column: (-scores[column], column)) == best


def test_free_cards_of_the_wanted_model_are_counted() -> None:
    fleet = fleet_of(node_state([SIZE] * 4, LEFT), node_state([SIZE] * 2, node="n2"))
    request = pod(whole())
    wishing = replace(request, constraints=Constraints(models=(ModelConstraint(("T4",)),)))
    policy = NODE_POLICIES["free-count"]
    assert policy.score(outcome_of(view_of(fleet, wishing))).tolist() == [1, 2]
    assert policy.score(outcome_of(view_of(fleet, request))).tolist() == [0, 0]


# -- random


def test_chance_differs_between_pods_and_between_cards() -> None:
    fleet = fleet_of(*(node_state([SIZE] * 8, node=f"n{number}") for number in range(50)))
    firsts = [order("random", view_of(fleet, pod(shared(1, 1), uid="u")), column)[0] for column in range(50)]
    others = [order("random", view_of(fleet, pod(shared(1, 1), uid="v")), column)[0] for column in range(50)]
    assert len(set(firsts)) == 8
    assert firsts != others


# -- load


def loaded(*loads: tuple[float, float]) -> Block:
    state = node_state([SIZE] * len(loads))
    fleet = fleet_of(state)
    fleet.set_load("n1", {gpu.uuid: load for gpu, load in zip(state.cards.gpus, loads, strict=True)})
    return fleet


def test_the_coolest_card_comes_first_and_a_card_with_a_stale_sample_is_as_busy_as_it_was_sold() -> None:
    view = view_of(
        loaded((0.9, 100), (0.2, 100), (0.0, 10), (float("nan"), 100), (0.4, 100)),
        pod(shared(1, 1)),
        PolicySettings(now=120, stale_after=60),
    )
    assert order("load", view) == [2, 3, 1, 4, 0]


def test_what_was_placed_after_the_sample_counts_as_busy() -> None:
    fleet = loaded((0.1, 100), (0.3, 100))
    fleet.placed_since[0, 0] = 0.5
    view = view_of(fleet, pod(shared(1, 1)), PolicySettings(now=120))
    assert order("load", view) == [1, 0]
    outcome = outcome_of(view, [(1,)])
    assert NODE_POLICIES["load"].score(outcome).tolist() == pytest.approx([0.7])
    assert NODE_POLICIES["load"].why(outcome, 0) == "its cards are 30% busy, 1 of 1 measured"


def test_load_says_when_it_goes_by_what_pods_asked_for() -> None:
    view = view_of(loaded((0.1, 10), (0.3, 100)), pod(shared(1, 1)), PolicySettings(now=120))
    assert NODE_POLICIES["load"].why(outcome_of(view, [(0,)]), 0) == "its cards are 0% busy, 0 of 1 measured"


# -- FGD

HALVES = Workload((PodShape(1, 500, 1), PodShape(1, 1000, 1)))


def test_a_part_goes_where_it_leaves_something_useful() -> None:
    """A quarter: on a card with three quarters left it leaves a half, on an empty one it breaks a whole."""
    fleet = fleet_of(node_state([SIZE] * 3, [(100, 1000), (50, 500), (75, 750)]))
    view = view_of(fleet, pod(shared(25, 250)), PolicySettings(workload=HALVES))
    assert order("fgd", view) == [2, 1, 0]


def test_memory_alone_is_judged_by_memory_alone() -> None:
    fleet = fleet_of(node_state([SIZE] * 2, [(10, 1000), (100, 750)]))
    view = view_of(fleet, pod(shared(0, 250)), PolicySettings(workload=HALVES))
    assert order("fgd", view) == [1, 0]


def test_the_measure_counts_what_each_shape_cannot_use() -> None:
    fleet = fleet_of(node_state([SIZE] * 3, [(100, 1000), (60, 600), (30, 300)]))
    idle = np.zeros(fleet.has.shape, np.int64)
    idle[:3, 0] = 1000, 600, 300
    assert fragments(fleet, idle, fleet.host_cpu, Workload((PodShape(1, 500, 1),))).tolist() == [300]
    assert fragments(fleet, idle, fleet.host_cpu, Workload((PodShape(2, 700, 1),))).tolist() == [1900]
    assert fragments(fleet, idle, fleet.host_cpu, Workload((PodShape(0, 1, 1),))).tolist() == [1900]
    assert fragments(fleet, idle, fleet.host_cpu, Workload((PodShape(1, 500, 1, ("A100",)),))).tolist() == [1900]
    assert fragments(fleet, idle, fleet.host_cpu, Workload((PodShape(1, 500, 3), PodShape(2, 700, 1)))).tolist() == [
        3 * 300 + 1900
    ]


def test_a_shape_that_the_node_has_no_cpu_for_can_use_nothing_there() -> None:
    fleet = fleet_of(node_state([SIZE]), node_state([SIZE], node="n2"))
    fleet.set_host("n2", Host(cpu=3999))
    idle = np.zeros(fleet.has.shape, np.int64)
    idle[0] = 1000
    asking = Workload((PodShape(1, 500, 1, cpu=4000), PodShape(1, 500, 1)))
    assert fragments(fleet, idle, fleet.host_cpu, asking).tolist() == [0, 1000]


def test_a_pod_goes_where_its_cpu_leaves_a_card_usable() -> None:
    """Each takes a part of the same size; on the second node, it takes the CPU that the other card needs."""
    fleet = fleet_of(node_state([SIZE] * 2), node_state([SIZE] * 2, node="n2"))
    fleet.set_host("n1", Host(cpu=8000))
    fleet.set_host("n2", Host(cpu=7000))
    asking = Workload((PodShape(1, 1000, 1, cpu=4000),))
    request = replace(pod(shared(50, 500)), host=Host(cpu=4000))
    view = view_of(fleet, request, PolicySettings(workload=asking))
    scores = NODE_POLICIES["fgd"].score(outcome_of(view, [(0,), (0,)]))
    assert scores[0] > scores[1]
    ranks = GPU_POLICIES["fgd"].rank(view)
    assert [-ranks[0, column] for column in range(2)] == scores.tolist()


def test_memory_is_a_larger_share_of_a_smaller_card() -> None:
    shape = PodShape(1, 100, 1, mib=8000)
    assert shape.share_of(CardModel("T4", 16000)) == 500
    assert shape.share_of(CardModel("A100", 80000)) == 100
    assert shape.share_of(CardModel("P4", 7000)) > 1000


def test_the_workload_is_learnt_from_the_pods_that_come() -> None:
    seen = ShapeCounts()
    settings = PolicySettings(seen=seen)
    assert settings.expected is COMMON, "nothing was seen"
    for _ in range(49):
        seen.add(pod(shared(50, 0)))
    few = settings.expected
    assert few.shapes[0].share == 500
    assert few.shapes[0].weight > COMMON.weight, "32 pods were counted, and the common workload is worth 16"
    assert few.shapes[1:] == COMMON.shapes
    for _ in range(15):
        seen.add(pod(shared(30, 300)))
    assert {(shape.share, shape.mib, shape.weight) for shape in settings.expected.shapes} == {
        (500, 0, 49),
        (300, 300, 15),
    }
    assert settings.expected is settings.expected, "worked out once"


def test_equal_gradients_are_equal_ranks_whatever_the_rounding_of_sums() -> None:
    fleet = fleet_of(*(node_state([SIZE] * 8, node=f"n{number}") for number in range(20)))
    for mib in (1, 47, 230, 333, 810):
        ranks = GPU_POLICIES["fgd"].rank(view_of(fleet, pod(shared(0, mib))))
        assert len(np.unique(ranks[fleet.has])) == 1


def test_a_card_alone_and_the_node_agree_on_the_gradient() -> None:
    fleet = fleet_of(node_state([SIZE] * 4, LEFT), node_state([SIZE] * 2, node="n2"))
    view = view_of(fleet, pod(shared(10, 230)), PolicySettings(workload=COMMON))
    ranks = np.broadcast_to(GPU_POLICIES["fgd"].rank(view), view.possible.shape)
    for row in range(2):
        scores = NODE_POLICIES["fgd"].score(outcome_of(view, [(row,), (row,)]))
        assert scores.tolist() == (-ranks[row]).tolist()


@pytest.mark.parametrize(("cards", "share", "weight"), [(-1, 500, 1), (1, 0, 1), (1, 1001, 1), (1, 500, 0)])
def test_a_shape_that_is_none_is_refused(cards: int, share: int, weight: int) -> None:
    with pytest.raises(BadConfig, match="workload"):
        PodShape(cards, share, weight)


def test_a_workload_needs_a_shape() -> None:
    with pytest.raises(BadConfig, match="workload"):
        Workload(())


def test_an_unhealthy_card_has_nothing_idle() -> None:
    state = node_state([SIZE] * 2)
    broken = replace(state.cards, gpus=(state.cards.gpus[0], replace(make_gpu(1), mib=SIZE, healthy=False)))
    fleet = Block(8)
    fleet.put(broken, {broken.gpus[0].uuid: Charge(50, 500, shares=1)})
    view = view_of(fleet, pod(shared(10, 100)), PolicySettings(workload=Workload((PodShape(2, 100, 1),))))
    assert np.unique(GPU_POLICIES["fgd"].rank(view)[0, 0]) == -52
