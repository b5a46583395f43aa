"""One run: what fits is placed where the policy wants it, and what does not fit fails."""

from dataclasses import replace

import pytest

from aliquot.engine.policies import GPU_POLICIES, NODE_POLICIES
from aliquot.model import Charge, Host
from aliquot.simulate.orders import by_time
from aliquot.simulate.policy_names import PolicyPair, parsed_policy
from aliquot.simulate.run import run
from aliquot.simulate.scenario import Arrival, Order, World
from tests.unit.simulate.worlds import node, one_by_one, pod

BINPACK = parsed_policy("binpack")
FGD = parsed_policy("fgd")


def test_pods_fill_the_cluster_and_the_next_one_fails() -> None:
    world = World([node("a", 2), node("b", 1)], [pod(str(number)) for number in range(4)])
    result = run(world, one_by_one(world), BINPACK)
    assert (result.cards, result.arrivals, result.arrived, result.placed, result.allocated) == (3, 4, 4.0, 3.0, 3.0)
    assert result.failed == (3,)
    assert [(point.arrived, round(point.allocation, 1)) for point in result.points] == [
        (33, 33.3),
        (67, 66.7),
        (100, 100.0),
        (133, 100.0),
    ]


def test_failed_pods_are_counted_by_what_they_asked_for() -> None:
    pods = [pod("large", 4), pod("small", 1, 500), pod("web", 0, cpu=99_000), pod("other", models=("A100",))]
    world = World([node()], pods)
    result = run(world, one_by_one(world), BINPACK)
    assert (result.failed, result.failed_gpu, result.failed_multi) == ((0, 2, 3), 2, 1)


@pytest.mark.parametrize(("cpu", "memory"), [(20_000, 0), (0, 60_000)])
def test_cpu_and_memory_of_a_node_are_respected(cpu: int, memory: int) -> None:
    world = World([node(cards=4)], [pod("a", cpu=cpu, memory=memory), pod("b", cpu=cpu, memory=memory)])
    assert run(world, one_by_one(world), BINPACK).failed == (1,)


def test_a_pod_goes_to_a_node_with_the_labels_that_it_selects() -> None:
    nodes = [node("a"), replace(node("b", 1), labels={"zone": "1", "disk": "ssd"})]
    pods = [replace(pod(str(number)), selector={"zone": "1"}) for number in range(2)]
    world = World(nodes, pods)
    assert run(world, one_by_one(world), BINPACK).failed == (1,)


def test_the_lowest_rank_wins_among_equal_nodes() -> None:
    world = World([node("a"), node("b", model="A100")], [pod(cpu=0)])
    first = run(world, Order("", [Arrival(0, 0)], [0, 1]), BINPACK)
    second = run(world, Order("", [Arrival(0, 0)], [1, 0]), BINPACK)
    assert [each.model for each in first.models if each.allocated] == ["T4"]
    assert [each.model for each in second.models if each.allocated] == ["A100"]


def test_a_pod_that_leaves_makes_room_before_the_next_one_arrives() -> None:
    pods = [pod("a", leaves=10.0), pod("b", arrives=9.0), pod("c", arrives=10.0)]
    world = World([node(cards=1)], pods)
    assert run(world, by_time(world, departures=True), BINPACK).failed == (1,)
    assert run(world, by_time(world, departures=False), BINPACK).failed == (1, 2)


def test_pods_that_stay_hold_their_part_from_the_beginning() -> None:
    kept = replace(node(), used={"n1-0": Charge(0, 60_000, shares=1)}, taken=Host(31_000, 0))
    world = World([kept], [pod("a", milli=500, cpu=1000), pod("b", milli=400, cpu=1)])
    result = run(world, one_by_one(world), BINPACK)
    assert result.failed == (1,), "a has the other card, and all CPU that was left"
    assert result.allocated == pytest.approx(1.1)


def test_a_run_may_end_at_the_first_failure_that_matters() -> None:
    world = World([node(cards=1)], [pod(str(number)) for number in range(5)])
    assert run(world, one_by_one(world), BINPACK, may_fail={1}).failed == (1, 2)


def test_fgd_places_pods_without_gpu_where_no_idle_card_needs_the_cpu() -> None:
    pods = [pod("web", 0, cpu=7000), *(pod(str(number), cpu=2000) for number in range(5))]
    world = World([node("a", 4, cpu=8000), node("b", 1, cpu=64_000)], pods)
    assert run(world, one_by_one(world), FGD, know_workload=True).failed == ()
    assert run(world, one_by_one(world), BINPACK).failed != ()


@pytest.mark.parametrize("name", sorted({*NODE_POLICIES} & {*GPU_POLICIES}))
def test_every_policy_places_pods_of_every_kind(name: str) -> None:
    pods = [pod("whole"), pod("part", milli=300), pod("two", 2), pod("web", 0)]
    world = World([node("a", 4), node("b", 4, "A100")], pods)
    assert run(world, one_by_one(world), parsed_policy(name)).failed == ()


def test_a_pair_of_policies_is_for_nodes_and_cards() -> None:
    assert parsed_policy("free-count/topology+binpack") == PolicyPair(
        "free-count/topology+binpack", "free-count", "topology,binpack"
    )


def test_what_a_cluster_settles_at_is_the_mean_of_the_second_half() -> None:
    pods = [pod("a", leaves=2.5), pod("b", arrives=1.0), pod("c", arrives=2.0), pod("d", arrives=3.0)]
    world = World([node(cards=4)], pods)
    result = run(world, by_time(world, departures=True), BINPACK)
    assert [(point.arrived, point.allocation) for point in result.points] == [(25, 25), (50, 50), (75, 75), (100, 75)]
    assert result.left == 1
    assert result.settled == pytest.approx(200 / 3)
