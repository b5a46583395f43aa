"""elastic-gpu: the arithmetic of a card, what fits, and the choices of its three kinds of raters."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine.one_node.search import arrange
from aliquot.engine.policies import GPU_POLICIES
from aliquot.engine.policies.elastic_percent import ascending, choose
from aliquot.engine.view import PodPolicy
from aliquot.model import Charge, Part
from aliquot.model.selling import conflict
from tests.factories import NODE, make_gpu
from tests.states import Cluster, indexes, node_state, percent, pod, shared, whole

pytestmark = pytest.mark.vectors

Pair = tuple[int, int]


# -- the arithmetic of a card, in (cores, memory)


@pytest.mark.parametrize(
    ("has", "less", "left"),
    [((100, 20), (80, 20), (20, 0)), ((100, 20), (20, 10), (80, 10)), ((100, 20), (0, 0), (100, 20))],
)
def test_what_is_taken_is_gone(has: Pair, less: Pair, left: Pair) -> None:
    assert Charge(*has) - Charge(*less) == Charge(*left)


@pytest.mark.parametrize(("has", "more", "then"), [((20, 0), (80, 100), (100, 100)), ((10, 80), (80, 20), (90, 100))])
def test_what_is_given_back_is_there(has: Pair, more: Pair, then: Pair) -> None:
    assert Charge(*has) + Charge(*more) == Charge(*then)


@pytest.mark.parametrize(
    ("left", "asked", "then"),
    [
        ((100, 100), (80, 100), (20, 0)),
        ((100, 100), (80, 120), None),
        ((100, 100), (100, 100), (0, 0)),
        ((100, 100), (120, 100), None),
        ((30, 30), (100, 100), None),
        pytest.param((100, 100), (80, 80), (20, 20), id="80-percent"),
        pytest.param((100, 100), (20, 20), (80, 80), id="20-percent"),
        pytest.param((100, 100), (120, 120), None, id="120-percent"),
        pytest.param((30, 30), (100, 100), None, id="100-of-30-percent"),
    ],
)
def test_a_part_is_taken_if_it_fits(left: Pair, asked: Pair, then: Pair | None) -> None:
    gpu, used = make_gpu(mib=100), Charge(100 - left[0], 100 - left[1])
    fits = not conflict(gpu, used, Charge(*asked, shares=1))
    assert fits is (then is not None)
    if then:
        assert Charge(*left) - Charge(*asked) == Charge(*then)


# -- what fits


@pytest.mark.parametrize(
    ("cards", "demands", "fits"),
    [
        ([(100, 15), (100, 15)], [(50, 7), (50, 7)], True),
        ([(100, 15)], [(50, 7), (50, 7)], True),
        ([(100, 15)], [(50, 7), (50, 9)], False),
        ([(100, 15)], [(50, 7), (50, 8)], True),
        ([(100, 15), (100, 15)], [(50, 7), (50, 9)], True),
        ([(100, 7), (100, 7)], [(50, 7), (50, 9)], False),
        ([(10, 15), (100, 15)], [(100, 7), (10, 15)], True),
    ],
)
def test_a_pod_fits_if_there_is_any_way(cards: Sequence[Pair], demands: Sequence[Pair], fits: bool) -> None:
    state = node_state([mib for _, mib in cards], cards)
    assert (arrange(state, pod(*(shared(*demand) for demand in demands))) is not None) is fits


@pytest.mark.parametrize(
    ("cards", "demands", "fits"),
    [([100, 100], [50, 50], True), ([100], [50, 50], True), ([100], [50, 60], False), ([100, 100], [100, 10], True)],
)
def test_percents_fit_if_there_is_any_way(cards: Sequence[int], demands: Sequence[int], fits: bool) -> None:
    state = node_state([100] * len(cards), [(left, left) for left in cards])
    assert (arrange(state, pod(*map(percent, demands))) is not None) is fits


# -- 0.3: choices and rates in percent

CHOICES = [
    pytest.param([100, 100], [20, 40], [0, 0], [0, 1], id="two-empty-cards"),
    pytest.param([20, 100], [20, 40], [0, 1], [1, 1], id="one-nearly-full"),
    pytest.param([10, 100], [20, 40], [1, 1], [1, 1], id="one-too-full"),
    pytest.param([100, 100], [0, 40, 40], [-1, 0, 0], [-1, 0, 1], id="a-container-without-gpu"),
    pytest.param([10, 50], [20, 40], None, None, id="too-full"),
    pytest.param([100, 40], [25, 60], [1, 0], [0, 0], id="cards-that-become-equal"),
    pytest.param([40, 5, 70, 10], [40, 60, 5], [0, 2, 1], [0, 2, 2], id="cards-that-become-equal-on-top"),
]


@pytest.mark.parametrize(("free", "demands", "binpack", "spread"), CHOICES)
def test_the_largest_demand_chooses_first(
    free: list[int], demands: list[int], binpack: list[int] | None, spread: list[int] | None
) -> None:
    assert choose(free, demands, spread=False) == binpack
    assert choose(free, demands, spread=True) == spread


def as_the_original(free: Sequence[int], demands: Sequence[int], *, spread: bool) -> list[int] | None:
    """Its algorithm, step by step, on lists of [size, place]. It has one list of cards and sorts that in place, by
    insertion, as Go sorts up to twelve."""
    cards, wanted = ([[size, place] for place, size in enumerate(sizes)] for sizes in (free, demands))
    _sort_by_insertion(wanted)
    found = {}
    for amount, place in reversed(wanted):
        if amount == 0:
            found[place] = -1
            continue
        _sort_by_insertion(cards)
        for card in reversed(cards) if spread else cards:
            if card[0] >= amount:
                card[0] -= amount
                found[place] = card[1]
                break
    return [found[place] for place in range(len(demands))] if len(found) == len(demands) else None


def _sort_by_insertion(pairs: list[list[int]]) -> None:
    for end in range(1, len(pairs)):
        place = end
        while place > 0 and pairs[place][0] < pairs[place - 1][0]:
            pairs[place], pairs[place - 1] = pairs[place - 1], pairs[place]
            place -= 1


@pytest.mark.parametrize("spread", [False, True], ids=["binpack", "spread"])
@pytest.mark.parametrize("step", [1, 5, 20])
def test_random_pods_get_the_cards_that_the_original_chooses(step: int, spread: bool) -> None:
    random = Random(f"{step} {spread}")
    for _ in range(3000):
        free = [random.randrange(0, 101, step) for _ in range(random.randint(1, 12))]
        demands = [random.randrange(0, 101, step) for _ in range(random.randint(2, 6))]
        assert choose(free, demands, spread=spread) == as_the_original(free, demands, spread=spread), (free, demands)


FEW_SIZES = st.sampled_from([0, 20, 40, 60, 80, 100])
"""Few enough that cards become equal all the time."""


@given(st.lists(FEW_SIZES, min_size=1, max_size=6), st.lists(FEW_SIZES, min_size=1, max_size=4), st.booleans())
def test_any_pod_gets_the_cards_that_the_original_chooses(free: list[int], demands: list[int], spread: bool) -> None:
    expected = as_the_original(free, demands, spread=spread)
    assert choose(free, demands, spread=spread) == expected
    asking = [place for place, demand in enumerate(demands) if demand]
    if asking:
        state = node_state([1000] * len(free), [(left, left * 10) for left in free])
        arranged = indexes(
            original(f"elastic-0.3-{'spread' if spread else 'binpack'}").arrange(
                state, pod(*(percent(demands[place]) for place in asking))
            )
        )
        assert arranged == (None if expected is None else [(expected[place],) for place in asking])


def test_cards_are_sorted_by_what_is_free() -> None:
    assert ascending([80, 100, 30, 50]) == [2, 3, 0, 1]


def original(name: str) -> PodPolicy:
    policy = GPU_POLICIES[name]
    assert isinstance(policy, PodPolicy)
    return policy


@pytest.mark.parametrize(("free", "demands", "binpack", "spread"), CHOICES)
def test_the_policies_choose_so_on_a_node(
    free: list[int], demands: list[int], binpack: list[int] | None, spread: list[int] | None
) -> None:
    state = node_state([1000] * len(free), [(left, left * 10) for left in free])
    request = pod(*(percent(demand) for demand in demands if demand))
    for name, chosen in (("elastic-0.3-binpack", binpack), ("elastic-0.3-spread", spread)):
        expected = None if chosen is None else [(index,) for index in chosen if index >= 0]
        assert indexes(original(name).arrange(state, request)) == expected


@pytest.mark.parametrize(
    ("policy", "free", "demands"),
    [
        pytest.param("elastic-0.3-spread", [50, 60], [30, 30, 50], id="spread"),
        pytest.param("elastic-0.3-binpack", [80, 90], [30, 30, 50, 60], id="binpack"),
    ],
)
def test_where_greed_finds_no_way_the_search_does(policy: str, free: list[int], demands: list[int]) -> None:
    state = node_state([100] * len(free), [(left, left) for left in free])
    request = pod(*map(percent, demands))
    assert original(policy).arrange(state, request) is None
    assert arrange(state, request) is not None


@pytest.mark.parametrize(
    ("policy", "free", "rate"),
    [
        ("binpack", [30, 50], 58),
        ("binpack", [20, 40], 68),
        ("binpack", [71], 27),
        ("spread", [30, 50], 6),
        ("spread", [20, 40], 4),
        ("spread", [90], 8),
        ("spread", [50, 40], 7),
        ("spread", [100], 109),
        ("spread", [50, 50], 8),
        ("spread", [100, 50], 113),
    ],
)
def test_a_node_is_rated_by_what_is_free_before(policy: str, free: list[int], rate: int) -> None:
    name = f"elastic-0.3-{policy}"
    node = Cluster(node_state([100] * len(free), [(left, left) for left in free]), gpu_policy=name, node_policy=name)
    assert node.judge(pod(percent(10))).scores([NODE]) == {NODE: rate}


# -- the present kind: every way is rated

SIZE = 16384


@pytest.mark.parametrize(
    ("sizes", "left", "parts", "rater", "cards", "score"),
    [
        pytest.param([12] * 4, None, [shared(0, 4)], "binpack", [(3,)], 100, id="the-last-of-equal-ways"),
        pytest.param(
            [SIZE] * 2,
            [(100, 12288), (100, SIZE)],
            [shared(0, 1024)],
            "binpack",
            [(0,)],
            128000,
            id="beside-a-part-on-0",
        ),
        pytest.param(
            [SIZE] * 2,
            [(100, SIZE), (100, 12288)],
            [shared(0, 1024)],
            "binpack",
            [(1,)],
            128000,
            id="beside-a-part-on-1",
        ),
        pytest.param([SIZE] * 2, None, [shared(0, 1024)] * 2, "binpack", [(1,), (1,)], 51200, id="both-on-one-card"),
        pytest.param([SIZE] * 2, None, [whole(), whole()], "binpack", [(0,), (1,)], 0, id="whole-cards-in-order"),
        pytest.param([12] * 4, None, [shared(20, 4)] * 2, "spread", [(3,), (3,)], 0, id="spread-that-does-not-spread"),
    ],
)
def test_the_best_rated_way_is_taken(
    sizes: list[int], left: list[Pair] | None, parts: list[Part], rater: str, cards: list[tuple[int, ...]], score: int
) -> None:
    name = f"elastic-{rater}"
    node = Cluster(node_state(sizes, left), gpu_policy=name, node_policy=name)
    assert node.judge(pod(*parts)).scores([NODE]) == {NODE: score}
    assert node.put("p", pod(*parts)) == (NODE, cards)


# -- 0.1: each card alone


@pytest.mark.parametrize(
    ("policy", "left", "card", "score"),
    [
        pytest.param("binpack", [(100, 100), (60, 50), (90, 90)], 1, 5, id="binpack-the-fullest"),
        pytest.param("spread", [(60, 50), (100, 100), (90, 90)], 1, 10, id="spread-the-emptiest"),
        pytest.param("spread", [(60, 50), (85, 85), (80, 80)], 1, 8, id="spread-equal-after-rounding"),
    ],
)
def test_the_card_with_the_highest_of_ten_points_is_taken(policy: str, left: list[Pair], card: int, score: int) -> None:
    name = f"elastic-0.1-{policy}"
    node = Cluster(node_state([100] * len(left), left), gpu_policy=name, node_policy=name)
    assert node.judge(pod(shared(10, 10))).scores([NODE]) == {NODE: score}
    assert node.put("p", pod(shared(10, 10))) == (NODE, [(card,)])
