"""Where `lookahead` puts a pod, and what it says about it."""

from dataclasses import replace

import numpy as np
import pytest

from aliquot.engine import Fleet, PolicySettings, judge
from aliquot.engine.policies import NODE_POLICIES
from aliquot.engine.view import PolicyOutcome
from aliquot.engine.workload import PodShape, Workload
from aliquot.model import Constraints, ContainerRequest, Host, Life, ModelConstraint, NodeGpus, Part, Request
from tests.factories import make_gpu
from tests.states import node_state, pod, shared

SIZE = 1000
HALVES = Workload((PodShape(1, 500, 5), PodShape(1, 1000, 5)))
WHOLE = Part(whole=True)


def fleet_of(*left: list[tuple[int, int]], host: Host | None = None) -> Fleet:
    """Nodes n1, n2, ... with cards that have so many cores and MiB left."""
    fleet = Fleet()
    for number, cards in enumerate(left, 1):
        state = node_state([SIZE] * len(cards), cards, node=f"n{number}")
        fleet.put(state.cards, state.used)
        if host:
            fleet.set_host(f"n{number}", host)
    return fleet


def best(fleet: Fleet, request: Request, workload: Workload = HALVES) -> str | None:
    return judge(fleet, request, "lookahead", "lookahead", PolicySettings(workload=workload)).best()


FREE, HALF = (100, 1000), (50, 500)


def test_a_half_goes_to_the_half_that_is_left() -> None:
    assert best(fleet_of([FREE, FREE], [FREE, HALF]), pod(shared(50, 500))) == "n2"


def test_a_fuller_node_wins_where_nothing_is_lost() -> None:
    assert best(fleet_of([FREE, FREE], [FREE, (0, 0)]), pod(WHOLE)) == "n2"


def test_cpu_that_another_card_needs_is_left_to_it() -> None:
    fleet = fleet_of([FREE, FREE], [FREE, FREE], host=Host(16_000, 65_536))
    fleet.set_host("n1", Host(9000, 65_536), Host(16_000, 65_536))
    asking = Workload((PodShape(1, 1000, 10, cpu=8000, memory=1000),))
    request = replace(pod(WHOLE), host=Host(8000, 1000))
    assert best(fleet, request, asking) == "n1", "on n1 one card is lost anyway"


def test_the_last_node_for_a_large_pod_is_spent_last() -> None:
    """Four whole cards are asked for often; one node is left for them."""
    fours = Workload((PodShape(4, 1000, 5), PodShape(1, 1000, 5)))
    assert best(fleet_of([FREE] * 4, [FREE] * 3), pod(WHOLE), fours) == "n2"
    assert best(fleet_of([FREE] * 3, [FREE] * 4), pod(WHOLE), fours) == "n1"


def test_a_contested_model_is_spent_last() -> None:
    fleet = Fleet()
    for node, model in (("a", "NVIDIA A100"), ("t", "Tesla T4")):
        fleet.put(NodeGpus(node, (make_gpu(0, node, mib=SIZE, model=model),), 1), {})
    asking = Workload((PodShape(1, 1000, 5, ("A100",)), PodShape(1, 1000, 5)))
    assert best(fleet, pod(WHOLE), asking) == "t"
    particular = replace(pod(WHOLE), constraints=Constraints(models=(ModelConstraint(("A100",)),)))
    assert best(fleet, particular, asking) == "a"


def test_several_containers_cost_what_the_pod_leaves() -> None:
    containers = (ContainerRequest("a", shared(50, 500), Life.MAIN), ContainerRequest("b", shared(50, 500), Life.MAIN))
    request = replace(pod(WHOLE), containers=containers)
    assert best(fleet_of([FREE, FREE], [HALF, HALF]), request) == "n2"


def test_a_pod_without_gpu_goes_where_no_card_needs_its_cpu() -> None:
    fleet = fleet_of([FREE], [(0, 0)], host=Host(8000, 65_536))
    asking = Workload((PodShape(1, 1000, 10, cpu=8000),))
    (block,) = fleet.blocks
    request = Request("uid", "ns/web", "aliquot", (), host=Host(4000, 0))
    outcome = PolicyOutcome(block, request, PolicySettings(workload=asking), np.ones(2, np.bool_), [], [], choose=list)
    scores = NODE_POLICIES["lookahead"].score(outcome)
    assert scores[1] > scores[0]


def test_it_says_what_its_choice_costs() -> None:
    judgement = judge(
        fleet_of([FREE, FREE], [FREE, HALF]),
        pod(shared(50, 500)),
        "lookahead",
        "lookahead",
        PolicySettings(workload=HALVES),
    )
    assert judgement.why().startswith("costs in cards: idle in the end ")
    assert "next n1 with" in judgement.why()
    alone = judge(fleet_of([FREE]), pod(WHOLE), "lookahead", "lookahead")
    assert alone.why().endswith("no other node fits")
    assert judge(fleet_of([HALF]), pod(WHOLE), "lookahead", "lookahead").why() == ""


def test_it_says_what_several_containers_cost_together() -> None:
    containers = tuple(ContainerRequest(name, shared(50, 500), Life.MAIN) for name in "ab")
    judgement = judge(
        fleet_of([FREE, FREE], [HALF, HALF]),
        replace(pod(WHOLE), containers=containers),
        "lookahead",
        "lookahead",
        PolicySettings(workload=HALVES),
    )
    assert judgement.why().startswith("costs in cards: idle in the end ")


@pytest.mark.parametrize("policy", ["binpack", "fgd", "lookahead"])
def test_every_policy_names_the_next_best_node(policy: str) -> None:
    assert "next n" in judge(fleet_of([FREE], [FREE, HALF]), pod(shared(50, 500)), policy, policy).why()
