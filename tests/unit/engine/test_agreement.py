"""The arrays, the search and the plain rule say the same of any node and any request."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine import Fleet, PodPolicy, judge
from aliquot.engine.all_nodes.room import Room, need_of, takes, unpromised, wanted
from aliquot.engine.one_node.obstacles import obstacle
from aliquot.engine.one_node.search import arrange
from aliquot.engine.policies.table import GPU_POLICIES
from aliquot.engine.state import NodeState
from aliquot.model import Part, Reason, Request
from tests.unit.engine import plain
from tests.unit.engine.shapes import node_states, parts, requests

pairs = st.tuples(node_states("n0"), node_states("n1"))


def fleet_of(*states: NodeState) -> Fleet:
    fleet = Fleet()
    for state in states:
        fleet.put(state.cards, state.used)
    return fleet


@given(node_states(), requests())
def test_the_search_finds_a_way_exactly_if_there_is_one(state: NodeState, request: Request) -> None:
    way = arrange(state, request)
    assert (way is not None) is plain.fits(state, request)
    assert way is None or plain.is_sound(state, request, way)


@given(pairs, requests(), st.sampled_from(["binpack", "spread", "tightest", "topology,binpack"]))
def test_the_judgement_fits_exactly_where_there_is_a_way(
    states: tuple[NodeState, ...], request: Request, policy: str
) -> None:
    judgement = judge(fleet_of(*states), request, policy)
    for state in states:
        placement = judgement.placement(state.cards.node)
        assert (placement is not None) is plain.fits(state, request)
        assert (judgement.refusal(state.cards.node) is None) is (placement is not None)
        assert placement is None or plain.is_sound(state, request, plain.way_of(state, placement))


@given(pairs, requests(most=1))
def test_a_card_is_possible_exactly_if_it_has_no_obstacle(states: tuple[NodeState, ...], request: Request) -> None:
    (fleet,), part = fleet_of(*states).blocks, request.containers[0].part
    possible = takes(fleet, Room.now(fleet), need_of(fleet, part)) & fleet.serves(request.dialect)
    allowed, not_promised = wanted(fleet, request), unpromised(fleet, request)
    if allowed is not None:
        possible &= allowed
    if not_promised is not None:
        possible &= ~not_promised
    for column, state in enumerate(states):
        for row, gpu in enumerate(state.cards.gpus):
            assert possible[row, column] == (obstacle(state, gpu, part, request) is None)
        assert not possible[len(state.cards.gpus) :, column].any()


@given(pairs, requests())
def test_only_what_other_pods_hold_can_change_is_said_to_change(
    states: tuple[NodeState, ...], request: Request
) -> None:
    judgement = judge(fleet_of(*states), request)
    for state in states:
        reason = judgement.refusal(state.cards.node)
        empty = NodeState(state.cards, {})
        if reason in (Reason.NO_CARD_FITS, Reason.OVER_QUOTA):
            assert plain.fits(empty, request)
        elif reason not in (None, Reason.WRONG_MODE, Reason.NO_TOPOLOGY):
            assert not plain.fits(empty, request)


@given(pairs, requests())
def test_the_best_node_is_the_one_with_the_highest_score_and_the_smallest_name(
    states: tuple[NodeState, ...], request: Request
) -> None:
    judgement = judge(fleet_of(*states), request)
    names = [state.cards.node for state in states]
    scores = judgement.scores(names)
    assert scores.keys() == {name for name in names if judgement.refusal(name) is None}
    expected = min(scores, key=lambda name: (-scores[name], name), default=None)
    assert judgement.best(names) == judgement.best() == expected


@given(node_states(), parts())
def test_a_part_costs_the_same_on_arrays_and_on_one_card(state: NodeState, part: Part) -> None:
    """Both round memory down: `Memory.mib` and `_mib` of engine/all_nodes/room.py."""
    (fleet,) = fleet_of(state).blocks
    need, shape = need_of(fleet, part), fleet.has.shape
    for row, gpu in enumerate(state.cards.gpus):
        if state.cards.sells(gpu):
            sizes = (np.broadcast_to(size, shape)[row, 0] for size in (need.cores, need.mib, np.asarray(need.slots)))
            assert tuple(sizes) == part.on(gpu, state.cards.unit_mib)[:3]


@given(pairs, requests(most=1), st.sampled_from(["elastic-binpack", "elastic-spread"]))
def test_where_an_original_need_not_be_asked_it_would_choose_the_same_cards(
    states: tuple[NodeState, ...], request: Request, policy: str
) -> None:
    original = GPU_POLICIES[policy]
    assert isinstance(original, PodPolicy)
    judgement = judge(fleet_of(*states), request, policy)
    for state in states:
        placement, way = judgement.placement(state.cards.node), original.arrange(state, request)
        if placement is not None and way is not None and original.is_rank_enough(request):
            assert {slice_.uuid for slice_ in placement.slices()} == {
                gpu.uuid for cards in way.values() for gpu in cards
            }
