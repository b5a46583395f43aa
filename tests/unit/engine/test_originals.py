"""Originals that choose for the whole pod: asked once for nodes that are alike, and not without end."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from aliquot.engine import PodPolicy, PolicySettings, Ranks, View
from aliquot.engine.all_nodes.originals import Originals
from aliquot.engine.all_nodes.policy_chain import CardChoice
from aliquot.engine.all_nodes.question import Question
from aliquot.engine.all_nodes.room import Room, wanted
from aliquot.engine.block import Block
from aliquot.engine.state import NodeState
from aliquot.model import Gpu, Request
from tests.states import node_state, pod, shared


class Counting(PodPolicy):
    """Takes the last card, and notes where it was asked."""

    name = "counting"

    def __init__(self, steps: int = 1) -> None:
        self.asked: list[str] = []
        self._steps = steps

    def rank(self, view: View) -> Ranks:
        return view.free_mib

    def arrange(self, state: NodeState, request: Request) -> Mapping[str, tuple[Gpu, ...]]:
        self.asked.append(state.cards.node)
        return {container.name: state.cards.gpus[-1:] for container in request.containers}

    def steps(self, cards: int, request: Request) -> int:  # noqa: ARG002
        return self._steps


def originals(policy: Counting, *states: NodeState, request: Request | None = None) -> Originals:
    fleet, request = Block(8), request or pod(shared(10, 100))
    for state in states:
        fleet.put(state.cards, state.used)
    everywhere = np.ones(fleet.width, np.bool_)
    return Originals(
        Question(
            fleet, request, Room.now(fleet), wanted(fleet, request), everywhere, CardChoice((policy,)), PolicySettings()
        )
    )


def test_of_nodes_that_are_alike_one_is_asked() -> None:
    policy = Counting()
    left = [(100, 1000), (50, 500)]
    asked = originals(
        policy,
        node_state([1000] * 2, left, node="a"),
        node_state([1000] * 2, left, node="b"),
        node_state([1000] * 2, left[::-1], node="c"),
        node_state([1000] * 2, left, node="d", pairs={(0, 1): 150}),
        node_state([1000] * 2, left, node="e", unit_mib=4),
    )
    assert [asked.rows_at(column) for column in range(5)] == [[(1,)]] * 5
    assert policy.asked == ["a", "c", "d", "e"]


def test_beyond_what_a_decision_can_afford_nobody_is_asked_but_answers_stay() -> None:
    policy = Counting(steps=40_000)
    asked = originals(policy, *(node_state([1000 + number], node=f"n{number}") for number in range(4)))
    answers = [asked.rows_at(column) for column in range(4)]
    assert answers == [[(0,)], [(0,)], None, None]
    assert [asked.rows_at(column) for column in range(4)] == answers
    assert policy.asked == ["n0", "n1"]


@pytest.mark.parametrize(
    "request_", [pod(shared(10, 5000)), replace(pod(shared(10, 100)), together=True)], ids=["no-room", "together"]
)
def test_what_is_no_way_is_not_taken(request_: Request) -> None:
    assert originals(Counting(), node_state([1000] * 2), request=request_).rows_at(0) is None
