"""The exact programme, and the search when it hardly dives, against a brute force that shares no code with them."""

import random
from collections.abc import Callable, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot.engine.one_node.packing import pack
from aliquot.engine.one_node.puzzle import Puzzle, Size
from aliquot.engine.one_node.search import search
from aliquot.engine.topology import Wiring
from aliquot.model import Life, Topology
from aliquot.model.links import NVLINK

MAIN, INIT, SIDECAR = Life.MAIN, Life.INIT, Life.SIDECAR


def puzzle_of(
    free: Sequence[Size], wants: Sequence[int], needs: Sequence[Size], lives: Sequence[Life] | None = None
) -> Puzzle:
    """Parts that cost the same on every card."""
    allowed = [
        sum(1 << row for row, card in enumerate(free) if all(n <= f for n, f in zip(need, card, strict=True)))
        for need in needs
    ]
    return Puzzle(free, wants, [[need] * len(free) for need in needs], allowed, lives or [MAIN] * len(wants))


# -- brute force


def is_room(puzzle: Puzzle, card: int, here: Sequence[int]) -> bool:
    """Whether a card takes these containers, the rules written down one by one."""
    if not all(puzzle.allowed[container] >> card & 1 for container in here):
        return False
    if len({puzzle.needs[container][card][2] > 0 for container in here}) > 1:
        return False
    needs = [sizes[card] for sizes in puzzle.needs]
    return all(need <= free for need, free in zip(room_for(here, needs, puzzle.lives), puzzle.free[card], strict=True))


def room_for(here: Sequence[int], needs: Sequence[Size], lives: Sequence[Life]) -> Size:
    """What containers need on a card at most at any moment."""
    moments = [[container for container in here if lives[container] is not INIT]]
    moments += [
        [init, *(container for container in here if container < init and lives[container] is SIDECAR)]
        for init in here
        if lives[init] is INIT
    ]
    mib, cores, slots = (
        max(sum(needs[container][measure] for container in now) for now in moments) for measure in range(3)
    )
    return mib, cores, slots


def is_joined(puzzle: Puzzle, cards: Sequence[int]) -> bool:
    if puzzle.wiring is None:
        return True
    joined = {cards[0]}
    for _ in cards:
        joined |= {card for card in cards if any(puzzle.wiring.scores[card][other] >= NVLINK for other in joined)}
    return len(joined) == len(cards)


def is_way(puzzle: Puzzle, cards: Sequence[Sequence[int]]) -> bool:
    return (
        [len(set(each)) for each in cards] == list(puzzle.wants)
        and all(is_joined(puzzle, each) for each in cards)
        and all(
            is_room(puzzle, card, [container for container, each in enumerate(cards) if card in each])
            for card in range(len(puzzle.free))
        )
    )


def has_way(puzzle: Puzzle) -> bool:
    def place(container: int, held: Sequence[Sequence[int]]) -> bool:
        if container == len(puzzle.wants):
            return True
        for cards in combinations(range(len(held)), puzzle.wants[container]):
            if is_joined(puzzle, cards) and all(is_room(puzzle, card, [*held[card], container]) for card in cards):
                then = [[*here, container] if card in cards else here for card, here in enumerate(held)]
                if place(container + 1, then):
                    return True
        return False

    return place(0, [[]] * len(puzzle.free))


# -- who decides


def by_programme(puzzle: Puzzle) -> Sequence[Sequence[int]] | None:
    packed = pack(puzzle)
    assert not packed.limited
    if packed.members is None:
        return None
    members = list(enumerate(packed.members))
    return [[card for card, here in members if here >> container & 1] for container in range(len(puzzle.wants))]


def by_search(dive_steps: int) -> Callable[[Puzzle], Sequence[Sequence[int]] | None]:
    def decide(puzzle: Puzzle) -> Sequence[Sequence[int]] | None:
        found = search(puzzle, dive_steps=dive_steps)
        assert not found.limited
        return found.cards

    return decide


Decide = Callable[[Puzzle], Sequence[Sequence[int]] | None]
no_dive = pytest.param(by_search(0), id="search that does not dive")
short_dive = pytest.param(by_search(3), id="search that hardly dives")
everyone = pytest.mark.parametrize("decide", [pytest.param(by_programme, id="programme"), no_dive, short_dive])


def assert_decided(decide: Decide, puzzle: Puzzle, *, fits: bool) -> None:
    cards = decide(puzzle)
    assert (cards is not None) is fits
    assert cards is None or is_way(puzzle, cards)


# -- pods that were refused, though they fit


@everyone
@pytest.mark.parametrize(
    "puzzle",
    [
        pytest.param(
            puzzle_of(
                [(m, c, 0) for m, c in [(66, 34), (48, 18), (42, 25), (84, 50), (66, 34), (66, 34), (84, 50), (72, 27)]]
                + [(18, 16, 0)],
                [7, 3, 3, 5, 5, 2],
                [(18, 16, 0), *[(24, 9, 0)] * 4, (18, 16, 0)],
            ),
            id="cards that hold only some of the equal containers",
        ),
        pytest.param(
            puzzle_of(
                [(100, 0, 0), (10, 0, 0)], [1, 1, 1], [(10, 0, 0), (95, 0, 0), (10, 0, 0)], [SIDECAR, INIT, SIDECAR]
            ),
            id="equal sidecars, one before and one after an init container",
        ),
    ],
)
def test_a_pod_of_equal_containers_is_not_refused(decide: Decide, puzzle: Puzzle) -> None:
    assert_decided(decide, puzzle, fits=True)


# -- small puzzles, every way tried


@st.composite
def puzzles(draw: st.DrawFn, *, linked: bool = False) -> Puzzle:
    """Few kinds of containers, so that most have their equals."""
    count, cards = draw(st.integers(2, 5)), draw(st.integers(2, 5 if linked else 4))
    kinds = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.just(0)), min_size=1, max_size=3))
    if draw(st.integers(0, 2)) == 0:
        kinds.append((draw(st.integers(0, 3)), 0, draw(st.integers(1, 3))))
    needs = [draw(st.sampled_from(kinds)) for _ in range(count)]
    most = draw(st.integers(4, 14))
    free = [
        (draw(st.integers(0, most)), draw(st.integers(0, most)), draw(st.sampled_from([0, 4]))) for _ in range(cards)
    ]
    lives = [draw(st.sampled_from([MAIN, MAIN, *Life])) for _ in range(count)]
    made = puzzle_of(free, [draw(st.integers(1, cards)) for _ in range(count)], needs, lives)
    if not linked:
        return made
    pairs = [pair for pair in combinations(range(cards), 2) if draw(st.booleans())]
    return with_links(made, pairs)


def with_links(puzzle: Puzzle, pairs: Sequence[tuple[int, int]]) -> Puzzle:
    rows = range(len(puzzle.free))
    scores = tuple(tuple(NVLINK if (a, b) in pairs or (b, a) in pairs else 0 for b in rows) for a in rows)
    wiring = Wiring(scores, (None,) * len(rows))
    return Puzzle(puzzle.free, puzzle.wants, puzzle.needs, puzzle.allowed, puzzle.lives, Topology.NVLINK, wiring)


@everyone
@settings(max_examples=150)
@given(puzzle=puzzles())
def test_a_way_is_found_exactly_if_there_is_one(decide: Decide, puzzle: Puzzle) -> None:
    assert_decided(decide, puzzle, fits=has_way(puzzle))


@pytest.mark.parametrize("decide", [no_dive, short_dive])
@settings(max_examples=150)
@given(puzzle=puzzles(linked=True))
def test_a_connected_way_is_found_exactly_if_there_is_one(decide: Decide, puzzle: Puzzle) -> None:
    assert_decided(decide, puzzle, fits=has_way(puzzle))


# -- puzzles with a hidden way that leaves nothing free


def planted(seed: int) -> Puzzle:
    """Up to the bound: too many ways to try them all, but one is known. Most containers have their equals."""
    chance = random.Random(seed)
    cards, count = chance.randint(4, 16), chance.randint(3, 8)
    kinds = [(chance.randint(1, 60), chance.randint(1, 25), 0) for _ in range(chance.randint(1, 3))]
    cards_by_slots = chance.choice([0, 0, 2])
    kinds += [(chance.randint(1, 60), 0, 1)] * cards_by_slots
    needs = [chance.choice(kinds) for _ in range(count)]
    lives = [chance.choice([MAIN, MAIN, *Life]) for _ in range(count)]
    wants, held = [], [list[int]() for _ in range(cards)]
    for container, (_, _, slots) in enumerate(needs):
        able = range(cards_by_slots) if slots else range(cards_by_slots, cards)
        wants.append(chance.randint(1, min(8, len(able))))
        for card in chance.sample(able, wants[container]):
            held[card].append(container)
    return puzzle_of([room_for(here, needs, lives) for here in held], wants, needs, lives)


@everyone
@settings(max_examples=60)
@given(puzzle=st.integers(0, 1 << 32).map(planted))
def test_a_hidden_way_without_slack_is_never_refused(decide: Decide, puzzle: Puzzle) -> None:
    assert_decided(decide, puzzle, fits=True)


# -- connected cards at the bound


def grown(chance: random.Random, near: Sequence[Sequence[int]], count: int) -> list[int]:
    cards = [chance.randrange(len(near))]
    while len(cards) < count:
        cards.append(chance.choice(sorted({other for card in cards for other in near[card]} - set(cards))))
    return cards


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param([(card, (card + 1) % 16) for card in range(16)], id="ring"),
        pytest.param(
            [(card, card ^ 1 << bit) for card in range(16) for bit in range(4) if not card >> bit & 1], id="hypercube"
        ),
    ],
)
def test_a_hidden_connected_way_without_slack_is_found(pairs: Sequence[tuple[int, int]], seed: int) -> None:
    """Eight containers on sixteen cards, half of them equal to another one."""
    chance = random.Random(seed)
    near = [[a + b - card for a, b in pairs if card in (a, b)] for card in range(16)]
    kinds = [(chance.randint(5, 40), chance.randint(3, 24), 0) for _ in range(6)]
    needs = [*kinds, *kinds[:2]]
    wants = [chance.randint(2, 8) for _ in needs]
    held = [list[int]() for _ in range(16)]
    for container, want in enumerate(wants):
        for card in grown(chance, near, want):
            held[card].append(container)
    free = [room_for(here, needs, [MAIN] * 8) for here in held]
    hard = with_links(puzzle_of(free, wants, needs), pairs)
    assert_decided(by_search(1_500), hard, fits=True)
    assert_decided(by_search(0), hard, fits=True)
