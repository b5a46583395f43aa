"""One decision searches for as long as its effort lasts, over all nodes, and says where it did not search."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot.engine import (
    FULL_EFFORT,
    Effort,
    Fleet,
    Holder,
    NodeState,
    complete,
    explain,
    judge,
    on_each,
    preempt,
    within,
)
from aliquot.engine.why.findings import node_reason
from aliquot.model import Charge, ContainerRequest, Memory, Part, Reason, Request, Topology, charges
from bench.decision import hard_cases
from bench.searching.pods import CARDS, cards_of, charges_on, hard_request, used_by_others

LIMIT = Reason.SEARCH_LIMIT


def fleet_of(used: Sequence[Sequence[int]], order: Sequence[int] | None = None) -> Fleet:
    fleet = Fleet()
    for number in order or range(len(used)):
        cards = cards_of(f"n{number:03}")
        fleet.put(cards, charges_on(cards, used[number]))
    return fleet


def states_of(used: Sequence[Sequence[int]]) -> dict[str, NodeState]:
    cards = {f"n{number:03}": cards_of(f"n{number:03}") for number in range(len(used))}
    return {node: NodeState(cards[node], charges_on(cards[node], used[number])) for number, node in enumerate(cards)}


def test_a_hard_pod_costs_one_effort_however_many_nodes_there_are() -> None:
    fleet = fleet_of(used_by_others(100))
    judgement = judge(fleet, hard_request())
    reasons = judgement.refusals(fleet.names)
    assert judgement.effort.spent <= FULL_EFFORT
    assert set(reasons.values()) == {LIMIT}, "nothing else is known of nodes that were not searched"
    assert 0 < judgement.fits.sum() < 100, "and some were"


def test_nodes_that_need_no_search_are_found_without_any_effort() -> None:
    used = [*used_by_others(3), [0] * CARDS]
    small = replace(hard_request(), containers=hard_request().containers[:6])
    fleet = fleet_of(used)
    assert judge(fleet, small, effort=Effort(0)).fits.all()
    hard = judge(fleet_of(used[:3]), hard_request(), effort=Effort(0))
    assert (hard.refusals(["n000", "n001"]), hard.effort.ran_out) == ({"n000": LIMIT, "n001": LIMIT}, True)


def test_what_is_easy_is_found_before_the_effort_goes_into_what_is_hard() -> None:
    """The hard nodes are emptier and come first; what one of them takes is more than there is."""
    parts = [(3, 13, 26), (2, 23, 32), (3, 8, 38), (3, 28, 11), (3, 5, 37), (1, 11, 36), (3, 6, 26)]
    containers = (
        ContainerRequest(f"c{place}", Part(cards, cores=cores, memory=Memory(thousands * 1000)))
        for place, (cards, cores, thousands) in enumerate(parts)
    )
    request = Request("u", "default/p", "aliquot", tuple(containers))
    hard = [
        [0, 30, 21, 2, 3, 3, 30, 22],
        [12, 0, 14, 28, 19, 20, 14, 3],
        [4, 11, 27, 13, 16, 4, 20, 13],
    ]
    easy = [18, 30, 5, 5, 9, 4, 29, 12]
    used = [[thousands * 1000 for thousands in node] for node in (*hard, easy)]
    steps = 6_000
    assert judge(fleet_of(used[:1]), request, effort=Effort(steps)).effort.ran_out, "it is hard"
    judgement = judge(fleet_of(used), request, effort=Effort(steps))
    assert judgement.fits.tolist() == [False, False, False, True]
    assert judgement.refusals(["n000", "n001", "n002"]) == dict.fromkeys(["n000", "n001", "n002"], LIMIT)


@pytest.mark.parametrize("alike", [pytest.param(False, id="equal"), pytest.param(True, id="cards in another order")])
def test_nodes_that_are_alike_are_searched_once(alike: bool) -> None:
    (used,) = used_by_others(1)
    chance = random.Random(1)
    others = [chance.sample(used, len(used)) if alike else used for _ in range(30)]
    each, many = (judge(fleet_of(each), hard_request()) for each in ([used], [used, *others]))
    assert many.fits.all()
    assert many.effort.spent < each.effort.spent * 1.1
    for node in many.fleet.names:
        state, placement = many.fleet.state(node), many.placement(node)
        assert state is not None
        assert placement is not None
        after = state.plus(charges(placement, hard_request()))
        assert all(after.taken(gpu).mib <= gpu.mib for gpu in state.cards.gpus)


@settings(max_examples=10)
@given(order=st.permutations(range(5)), steps=st.sampled_from([0, 5_000, 120_000, 700_000]))
def test_the_same_effort_gives_the_same_answer_whatever_was_asked_before(order: Sequence[int], steps: int) -> None:
    used = used_by_others(5)
    expected = judge(fleet_of(used), hard_request(), effort=Effort(steps))
    names = sorted(expected.fleet.names)
    found = judge(fleet_of(used, order), hard_request(), effort=Effort(steps))
    assert found.refusals(names) == expected.refusals(names)
    assert found.effort.spent == expected.effort.spent
    assert [found.placement(name) for name in names] == [expected.placement(name) for name in names]


def test_only_nodes_that_matter_are_searched() -> None:
    fleet = fleet_of(used_by_others(100))
    judgement = judge(fleet, hard_request(), among=np.array([fleet.column("n099")]))
    assert judgement.searched == ["n099"]
    assert judgement.refusal("n099") is None


def test_a_pod_too_large_for_empty_nodes_is_not_called_too_large_when_nobody_has_looked() -> None:
    """Now there is too little memory in all, which shows at once. Whether it would do if they were empty does not."""
    fleet = fleet_of([[9_000] * CARDS] * 3)
    reasons = judge(fleet, hard_request(), effort=Effort(0)).refusals(fleet.names)
    assert set(reasons.values()) == {Reason.NO_CARD_FITS}


# -- all who search


def test_explaining_stops_with_the_effort() -> None:
    effort = Effort(100_000)
    explanation = explain(states_of(used_by_others(20)), hard_request(), effort=effort)
    assert effort.spent <= 100_000
    assert LIMIT in [group.reason for group in explanation.groups]


def test_a_node_is_told_to_fit_without_effort_where_going_down_once_suffices() -> None:
    (state,) = states_of([[0] * CARDS]).values()
    easy = replace(hard_request(), containers=hard_request().containers[:4])
    assert node_reason(state, easy, effort=Effort(0)) is None
    (state,) = states_of(used_by_others(1)).values()
    assert node_reason(state, hard_request(), effort=Effort(0)) is LIMIT


def preemptor() -> Request:
    return replace(hard_request(), priority=10)


def test_nobody_is_evicted_on_a_guess() -> None:
    states = states_of(used_by_others(10))
    full = {
        node: NodeState(state.cards, {gpu.uuid: Charge(0, 60_000, shares=1) for gpu in state.cards.gpus})
        for node, state in states.items()
    }
    holders = {
        node: [
            Holder(f"{gpu.uuid}-{part}", f"default/{gpu.uuid}-{part}", 0, {gpu.uuid: Charge(0, 20_000, shares=1)})
            for gpu in state.cards.gpus
            for part in range(3)
        ]
        for node, state in full.items()
    }
    effort = Effort(50_000)
    assert preempt(full, preemptor(), holders, effort) is None
    assert effort.spent <= 50_000
    node = "n000"
    assert complete(full[node], preemptor(), [], holders[node], Effort(50_000)) is None


def crowded(node: str, seed: int) -> tuple[NodeState, list[Holder]]:
    """Eight cards full of pods of all sizes: there is no end of sets whose end makes room on four of them."""
    sizes, cards = random.Random(seed), cards_of(node)
    holders = [
        Holder(f"{gpu.uuid}-{part}", "default/low", 0, {gpu.uuid: Charge(0, sizes.randint(4_000, 9_000), shares=1)})
        for gpu in cards.gpus
        for part in range(7)
    ]
    state = NodeState(cards, {})
    for holder in holders:
        state = state.plus(holder.charges)
    return state, holders


def crowds() -> tuple[dict[str, NodeState], dict[str, list[Holder]]]:
    nodes = {f"n{number}": crowded(f"n{number}", number) for number in range(20)}
    return {node: state for node, (state, _) in nodes.items()}, {node: held for node, (_, held) in nodes.items()}


def four_cards() -> Request:
    parts = (ContainerRequest("c", Part(cards=4, memory=Memory(60_000))),)
    return Request("u", "default/p", "aliquot", parts, priority=10)


def test_the_victims_of_one_container_take_their_effort_too() -> None:
    states, holders = crowds()
    effort = Effort()
    assert preempt(states, four_cards(), holders, effort) is not None
    assert effort.ran_out
    assert complete(states["n1"], four_cards(), [], holders["n1"], Effort(1000)) is None


def test_what_would_help_one_container_is_sought_as_long_as_the_effort_lasts() -> None:
    states, holders = crowds()
    effort = Effort(1000)
    told = explain(states, four_cards(), None, holders, effort)
    assert effort.ran_out
    assert [group.reason for group in told.groups] == [Reason.NO_CARD_FITS], "what is known does not depend on it"


# -- many nodes, one after another


def test_a_node_that_is_too_hard_leaves_the_others_their_share_and_has_what_is_left() -> None:
    needed = {"hard": 900_000, "harder": 450_000, **{f"n{number}": 1_000 for number in range(98)}}

    def attempt(node: str, effort: Effort) -> str | None:
        return node.upper() if effort.take(needed[node]) else None

    effort = Effort()
    found = on_each([*needed], attempt, effort)
    assert set(needed) - set(found) == {"hard", "harder"}
    assert effort.left == 0
    del needed["hard"]
    assert set(on_each([*needed], attempt, Effort())) == set(needed)


def test_one_node_alone_has_all_the_effort() -> None:
    assert on_each(["n1"], lambda _, effort: effort.take(FULL_EFFORT) or None, Effort()) == {"n1": True}


def test_connected_cards_take_their_effort_too() -> None:
    parts = [Part(cards=3 + place % 3, cores=30 + 3 * place, memory=Memory(9000 + 700 * place)) for place in range(6)]
    request = Request(
        "u", "default/p", "aliquot", tuple(ContainerRequest(f"c{n}", part) for n, part in enumerate(parts))
    )
    request = replace(request, constraints=replace(request.constraints, topology=Topology.NVLINK))
    effort = Effort(40_000)
    judge(hard_cases()["100 nodes of 16 cards, 8 of one NUMA node"].fleet, request, effort=effort)
    assert effort.spent <= 40_000


@pytest.mark.parametrize(
    ("steps", "left", "ran_out"),
    [
        pytest.param((100, 50), (70, 20), (False, False), id="enough"),
        pytest.param((100, 20), (80, 0), (False, True), id="the question has too few"),
        pytest.param((20, 100), (0, 80), (True, False), id="all together have too few"),
    ],
)
def test_a_question_takes_from_its_own_effort_and_from_that_of_all(
    steps: tuple[int, int], left: tuple[int, int], ran_out: tuple[bool, bool]
) -> None:
    budget, own = (Effort(each) for each in steps)
    assert within(budget, lambda effort: effort.take(30), own) is not any(ran_out)
    assert (budget.left, own.left) == left
    assert (budget.ran_out, own.ran_out) == ran_out
