"""gpu-admission's choice of nodes and cards, and gpu-manager's walk through its tree."""

import pytest

from aliquot.engine.policies.gpu_manager import fragment, link, share_order, tree
from aliquot.engine.policies.node_fill import NodeFill
from aliquot.engine.topology import wiring_of
from aliquot.model import Part
from aliquot.model.links import Pcie
from tests.factories import NODE
from tests.states import BLOCK, Cluster, groups, node_state, pod, shared, whole

pytestmark = pytest.mark.vectors

SIX = groups(
    (Pcie.SAME_CPU, [[0, 1, 2, 3, 4, 5]]),
    (Pcie.HOST_BRIDGE, [[0, 1, 2, 3]]),
    (Pcie.ONE_SWITCH, [[0, 1], [2, 3], [4, 5]]),
)
"""Pairs below one switch each, the first two pairs below one host bridge."""

MIB = 1024


CARDS = node_state([MIB] * 6, pairs=SIX)
ROOT = tree(wiring_of(CARDS.cards.gpus))
ALL = {0, 1, 2, 3, 4, 5}


def gpu_manager() -> Cluster:
    return Cluster(CARDS, gpu_policy="gpu-manager")


# -- the three walks


@pytest.mark.parametrize(
    ("free", "count", "rows"),
    [
        pytest.param(ALL, 2, [4, 5], id="200-from-the-smallest-branch"),
        pytest.param(ALL - {4}, 1, [5], id="100-from-the-fullest-branch"),
    ],
)
def test_fragment_takes_the_fullest_branch_that_has_enough(free: set[int], count: int, rows: list[int]) -> None:
    assert fragment(ROOT, free, count) == rows


def test_a_single_card_is_its_own_tree() -> None:
    assert fragment(tree(wiring_of(node_state([MIB]).cards.gpus)), {0}) == [0]


@pytest.mark.parametrize(
    ("free", "count", "rows"),
    [
        pytest.param(ALL, 3, [0, 1, 2], id="300-below-one-host-bridge"),
        pytest.param(ALL - {2}, 2, [0, 1], id="200-below-one-switch-lowest-of-equal-pairs"),
    ],
)
def test_link_takes_the_closest_branch_that_has_enough(free: set[int], count: int, rows: list[int]) -> None:
    assert link(ROOT, free, count) == rows


def test_share_takes_the_fullest_card_that_has_enough() -> None:
    node = gpu_manager()
    assert node.put("a", pod(shared(50, 0))) == (NODE, [(0,)])
    assert node.put("b", pod(shared(60, 0))) == (NODE, [(1,)])


@pytest.mark.parametrize("part", [shared(50, 0), whole()], ids=["half", "whole"])
def test_a_card_that_is_taken_is_not_available_until_it_is_free_again(part: Part) -> None:
    node = gpu_manager()
    node.put("a", pod(part))
    assert not node.judge(pod(whole(6))).fits.any()
    assert node.judge(pod(whole(5))).fits.all()
    node.remove("a")
    assert node.judge(pod(whole(6))).fits.all()


def test_cards_are_sorted_by_cores_then_memory_in_blocks_then_index() -> None:
    sizes = [BLOCK - 1 - index for index in range(6)]
    state = node_state(sizes, [(100, mib) for mib in sizes[:5]] + [(0, sizes[5])])
    assert [gpu.index for gpu in share_order(NodeFill(state, pod(shared(1, 0))))] == [5, 0, 1, 2, 3, 4]


# -- whole sequences


def test_the_allocator_walks_through_its_sequence() -> None:
    node = gpu_manager()
    assert node.put("pod-1", pod(whole(3))) == (NODE, [(0, 1, 2)])
    assert node.put("pod-2", pod(whole(), whole())) == (NODE, [(3,), (4,)])
    assert node.put("pod-3", pod(whole())) == (NODE, [(5,)])
    node.remove("pod-2")
    assert node.put("pod-4", pod(shared(50, 0))) == (NODE, [(3,)])
    assert node.put("pod-5", pod(shared(60, 0))) == (NODE, [(4,)])
    assert node.put("pod-6", pod(shared(50, 0))) == (NODE, [(3,)])
    node.remove("pod-5")
    assert node.put("pod-7", pod(whole())) == (NODE, [(4,)])
    assert node.fleet.blocks[0].free_cores[:6, 0].tolist() == [0] * 6


def test_six_whole_cards_empty_the_branches_one_after_another() -> None:
    node = gpu_manager()
    chosen = [node.put(f"p{number}", pod(whole())) for number in range(6)]
    assert chosen == [(NODE, [(row,)]) for row in (4, 5, 0, 1, 2, 3)]


def test_three_nodes_are_filled_in_ascending_order() -> None:
    nodes = [node_state([4 * BLOCK] * 2, node=f"testnode{number}") for number in range(3)]
    cluster = Cluster(*nodes, gpu_policy="admission", node_policy="admission")
    assert cluster.put("pod-0", pod(shared(10, BLOCK), shared(10, BLOCK))) == ("testnode0", [(0,), (0,)])
    assert cluster.put("pod-1", pod(whole(), shared(80, 3 * BLOCK))) == ("testnode1", [(0,), (1,)])
    assert cluster.put("pod-2", pod(whole(2))) == ("testnode2", [(0, 1)])
    assert cluster.put("pod-3", pod(shared(10, 2 * BLOCK))) == ("testnode0", [(0,)])
