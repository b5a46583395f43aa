"""Which pods have to end so that one of higher priority fits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine.holder import Holder, freed, without
from aliquot.engine.one_node.look import fits
from aliquot.engine.preempting import VictimSet, complete, preempt
from aliquot.engine.state import NodeState
from aliquot.model import Charge, ContainerRequest, Memory, NodeGpus, Part, Request, Unit
from tests.factories import T4, make_cards, make_gpu

GIB = 1024
WHOLE = Part(whole=True)


def units(amount: int, cards: int = 1) -> Part:
    return Part(cards=cards, memory=Memory(amount, Unit.NODE))


def request(*parts: Part, priority: int = 100, together: bool = False) -> Request:
    containers = tuple(ContainerRequest(f"c{place}", part) for place, part in enumerate(parts))
    return Request("new", "default/new", "gpushare", containers, together=together, priority=priority)


def holder(uid: str, priority: int = 0, cores: int = 0, **cards: int) -> Holder:
    """`holder("a", c0=8)` holds 8 GiB of card 0."""
    charges = {f"GPU-n1-{name[1:]}": Charge(cores, amount * GIB, shares=1) for name, amount in cards.items()}
    return Holder(uid, f"default/{uid}", priority, charges)


def held(cards: NodeGpus, holders: Sequence[Holder]) -> NodeState:
    state = NodeState(cards, {})
    for each in holders:
        state = state.plus(each.charges)
    return state


def node(count: int = 2) -> NodeGpus:
    return make_cards(mib=(T4,) * count)


TWO_CARDS = (holder("a", c0=8), holder("b", c1=8), holder("c", c1=4))


@dataclass(frozen=True)
class Case:
    holders: Sequence[Holder]
    parts: Sequence[Part]
    victims: Sequence[str] | None
    cards: int = 2
    together: bool = False


def cheapest(state: NodeState, asked: Request, holders: Sequence[Holder]) -> VictimSet | None:
    found = preempt({"n1": state}, asked, {"n1": holders})
    return None if found is None else found.victims


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(TWO_CARDS, [units(15)], ["a"]), id="one pod on its card is cheaper than two"),
        pytest.param(Case(TWO_CARDS, [units(7)], []), id="nobody, where it fits"),
        pytest.param(
            Case((holder("a", c0=12), holder("b", c1=9)), [units(8)], ["b"]), id="the one that gives back least"
        ),
        pytest.param(
            Case((holder("a", 5, c0=15), holder("b", 1, c1=8), holder("c", 1, c1=7)), [units(15)], ["b", "c"]),
            id="two unimportant pods rather than one important one",
        ),
        pytest.param(
            Case((holder("a", 200, c0=15), holder("b", 100, c1=15)), [units(15)], None),
            id="nobody of the same or a higher priority",
        ),
        pytest.param(Case((holder("a", c0=1),), [units(16)], None, cards=1), id="no eviction makes a card larger"),
        pytest.param(Case((holder("a", c0=1),), [WHOLE, WHOLE], ["a"]), id="both cards"),
        pytest.param(
            Case((holder("a", c0=1, c1=1), holder("b", c2=1), holder("c", c3=1)), [replace(WHOLE, cards=2)], ["a"], 4),
            id="a pod on two cards makes room on both",
        ),
        pytest.param(
            Case((holder("a", c0=9), holder("b", c0=9)), [units(6)], ["b"], cards=1),
            id="a card sold twice is full until enough of it is back",
        ),
        pytest.param(
            Case((holder("a", c0=9), holder("b", c0=9)), [units(7)], ["a", "b"], cards=1),
            id="and not emptier than the others leave it",
        ),
        pytest.param(
            Case((holder("a", cores=60, c0=1), holder("b", cores=40, c0=2)), [Part(cores=50)], ["a"], cards=1),
            id="cores count too",
        ),
        pytest.param(
            Case((holder("a", cores=60, c0=1), holder("b", cores=40, c0=2)), [Part(cores=30)], ["a"], cards=1),
            id="equal in number: the least memory given back",
        ),
        pytest.param(
            Case((holder("a", c0=8), holder("b", c1=8)), [units(8), units(7)], ["b"]),
            id="containers on cards of their own",
        ),
        pytest.param(
            Case((holder("a", c0=8), holder("b", c1=9)), [units(4), units(4)], ["a"], together=True),
            id="containers that share a card",
        ),
    ],
)
def test_the_cheapest_set_is_found(case: Case) -> None:
    state = held(node(case.cards), case.holders)
    found = cheapest(state, request(*case.parts, together=case.together), case.holders)
    assert (None if found is None else found.uids) == case.victims
    assert found is None or found.proven


def test_a_pod_does_not_evict_itself() -> None:
    own = holder("new", c0=15)
    assert cheapest(held(node(1), [own]), request(units(15)), [own]) is None


# -- completing kube-scheduler's set


@pytest.mark.parametrize(
    ("proposed", "answer"),
    [
        pytest.param(["a"], ["a"], id="enough as it is"),
        pytest.param(["b"], ["b", "c"], id="the rest of its card"),
        pytest.param(["c"], ["c", "b"], id="the rest of its card, the other way round"),
        pytest.param([], ["a"], id="an empty proposal"),
        pytest.param(["cpu-only"], ["cpu-only", "a"], id="a pod without GPU stays"),
        pytest.param(["a", "b", "c"], ["a", "b", "c"], id="never shrunk"),
    ],
)
def test_a_proposal_is_extended_until_a_card_is_wholly_free(proposed: list[str], answer: list[str]) -> None:
    """Two cards of 15 units, pods of 8 on the first, 8 and 4 on the second, and a preemptor of 15."""
    assert complete(held(node(), TWO_CARDS), request(units(15)), proposed, TWO_CARDS) == answer


def test_a_node_that_no_set_can_open_is_dropped() -> None:
    important = holder("a", 100, c0=8)
    assert complete(held(node(1), [important]), request(units(15)), ["cpu-only"], [important]) is None


# -- choosing the node


def cluster(**nodes: Sequence[Holder]) -> tuple[Mapping[str, NodeState], Mapping[str, Sequence[Holder]]]:
    return {name: held(node(1), holders) for name, holders in nodes.items()}, nodes


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param({"n1": [holder("a", 1, c0=8)], "n2": [holder("b", 0, c0=8)]}, ("n2", ["b"]), id="priority first"),
        pytest.param(
            {"n1": [holder("a", c0=4), holder("b", c0=4)], "n2": [holder("c", c0=15)]}, ("n2", ["c"]), id="then number"
        ),
        pytest.param({"n1": [holder("a", c0=9)], "n2": [holder("b", c0=8)]}, ("n2", ["b"]), id="then what they hold"),
        pytest.param({"n2": [holder("a", c0=8)], "n1": [holder("b", c0=8)]}, ("n1", ["b"]), id="then the name"),
        pytest.param({"n1": [holder("a", c0=8)], "n2": []}, ("n2", []), id="nobody, where it fits"),
        pytest.param({"n1": [holder("a", 100, c0=8)]}, None, id="nowhere"),
        pytest.param({}, None, id="no nodes"),
    ],
)
def test_the_cheapest_node_is_chosen(
    nodes: Mapping[str, Sequence[Holder]], expected: tuple[str, list[str]] | None
) -> None:
    found = preempt(*cluster(**nodes)[:1], request(units(15)), nodes)
    assert (found and (found.node, found.victims.uids)) == expected


# -- many pods


def crowd(cards: int, each: int) -> list[Holder]:
    return [
        holder(f"h{card}-{number:02}", number % 3, **{f"c{card}": 1}) for card in range(cards) for number in range(each)
    ]


@pytest.mark.parametrize(
    ("cards", "each", "part", "count"),
    [
        pytest.param(8, 8, units(12), 5, id="64 small pods, one card"),
        pytest.param(8, 8, replace(WHOLE, cards=2), 16, id="64 small pods, two whole cards"),
        pytest.param(8, 8, replace(WHOLE, cards=8), 64, id="64 small pods, the whole node"),
        pytest.param(8, 15, units(14), 14, id="120 small pods"),
        pytest.param(16, 4, replace(WHOLE, cards=8), 32, id="16 cards"),
    ],
)
def test_many_pods_are_judged_in_bounded_work(cards: int, each: int, part: Part, count: int) -> None:
    holders = crowd(cards, each)
    found = cheapest(held(node(cards), holders), request(part), holders)
    assert found is not None
    assert len(found.holders) == count


# -- against every possible set

Drawn = Sequence[tuple[int, Mapping[int, tuple[int, int]]]]
"""Priorities, and per card cores and GiB."""
CORES_AND_GIB = st.tuples(st.integers(0, 60), st.integers(1, 8))
HOLDERS = st.lists(
    st.tuples(st.sampled_from((0, 1, 100)), st.dictionaries(st.integers(0, 2), CORES_AND_GIB, min_size=1, max_size=2)),
    max_size=6,
)
PARTS = st.one_of(
    st.builds(
        lambda cards, cores, amount: Part(cards=cards, cores=cores, memory=Memory(amount, Unit.NODE)),
        st.integers(1, 2),
        st.sampled_from((0, 30, 60)),
        st.integers(1, 9),
    ),
    st.builds(lambda cards: replace(WHOLE, cards=cards), st.integers(1, 2)),
)


def small(sizes: Sequence[int], drawn: Drawn) -> tuple[NodeState, list[Holder]]:
    cards = NodeGpus("n1", tuple(make_gpu(index, mib=size * GIB) for index, size in enumerate(sizes)), GIB)
    holders = [
        Holder(
            f"h{number}",
            f"default/h{number}",
            priority,
            {f"GPU-n1-{at % len(sizes)}": Charge(cores, gib * GIB, shares=1) for at, (cores, gib) in parts.items()},
        )
        for number, (priority, parts) in enumerate(drawn)
    ]
    return held(cards, holders), holders


def by_trying_all(
    state: NodeState, asked: Request, holders: Sequence[Holder]
) -> tuple[int, int, tuple[int, int]] | None:
    lower = [each for each in holders if each.priority < asked.priority]
    sets = chain.from_iterable(combinations(lower, size) for size in range(len(lower) + 1))
    costs = [
        (max((each.priority for each in chosen), default=-1), len(chosen), freed(chosen))
        for chosen in sets
        if fits(without(state, chosen), asked)
    ]
    return min(costs, default=None)


@given(st.lists(st.integers(4, 10), min_size=1, max_size=3), HOLDERS, st.lists(PARTS, min_size=1, max_size=2))
def test_the_set_is_as_cheap_as_any_and_none_can_be_left_out(sizes: list[int], drawn: Drawn, parts: list[Part]) -> None:
    state, holders = small(sizes, drawn)
    asked = request(*parts)
    found = cheapest(state, asked, holders)
    best = by_trying_all(state, asked, holders)
    assert (found is None) == (best is None)
    if found is None or best is None:
        return
    highest = max((each.priority for each in found.holders), default=-1)
    assert (highest, len(found.holders), freed(found.holders)) == best
    assert fits(without(state, found.holders), asked)
    for spared in found.holders:
        assert not fits(without(state, (each for each in found.holders if each is not spared)), asked)


@given(
    st.lists(st.integers(4, 10), min_size=1, max_size=3),
    HOLDERS,
    st.lists(PARTS, min_size=1, max_size=2),
    st.sets(st.integers(0, 6)),
)
def test_a_completed_proposal_makes_it_fit_and_keeps_everybody(
    sizes: list[int], drawn: Drawn, parts: list[Part], picked: set[int]
) -> None:
    state, holders = small(sizes, drawn)
    asked = request(*parts)
    proposed = [f"h{number}" for number in sorted(picked)]
    answer = complete(state, asked, proposed, holders)
    lower_or_proposed = [each for each in holders if each.priority < asked.priority or each.uid in proposed]
    assert (answer is None) == (not fits(without(state, lower_or_proposed), asked))
    if answer is not None:
        assert answer[: len(proposed)] == proposed
        assert len(set(answer)) == len(answer)
        assert fits(without(state, (each for each in holders if each.uid in answer)), asked)
