"""Small clusters without remainder: every state of 1 to 3 cards and every request of 1 or 2 containers, in coarse
units, against a brute force that shares no code with the engine.

A card has 100 % of cores, 2 units of memory and 2 MPS slots. Everything is counted in halves of a card.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import combinations, combinations_with_replacement, product
from typing import NamedTuple

import pytest

from aliquot.engine import Fleet, judge
from aliquot.engine.one_node.search import arrange
from aliquot.engine.state import NodeState
from aliquot.model import Charge, ContainerRequest, Life, Memory, NodeGpus, Part, Request
from tests.factories import make_gpu

UNIT = 512
FULL = 2
"""Halves of a card."""


class Piece(NamedTuple):
    """Something taken of a card, or asked of each of `cards` cards: halves of cores and memory, and in which way."""

    cores: int
    memory: int
    way: str
    cards: int = 1


SHARED = [Piece(cores, memory, "shared") for cores, memory in product(range(3), range(3))]
SLOTS = [Piece(number, number, "mps") for number in (1, 2)]
WHOLE = [Piece(FULL, FULL, "whole")]

STATES = [None, *SHARED, *SLOTS, *WHOLE]
"""Of a card: nobody, or all that somebody holds of it."""
NODES = [cards for count in (1, 2, 3) for cards in combinations_with_replacement(STATES, count)]

ASKED = [piece for piece in SHARED + SLOTS + WHOLE if piece != (0, 0, "shared", 1)]
SINGLE = [piece._replace(cards=cards) for piece in ASKED for cards in (1, 2, 3)]
COARSE = [
    piece._replace(cards=cards)
    for piece in [*SLOTS[:1], *WHOLE, Piece(1, 1, "shared"), Piece(0, 2, "shared"), Piece(2, 1, "shared")]
    for cards in (1, 2)
]

Asked = tuple[tuple[Piece, Life], ...]


def requests_of_mains() -> Iterator[Asked]:
    for piece in SINGLE:
        yield ((piece, Life.MAIN),)
    for each, other in combinations_with_replacement(SINGLE, 2):
        yield ((each, Life.MAIN), (other, Life.MAIN))


def requests_with_lives() -> Iterator[Asked]:
    for lives in ((Life.INIT, Life.MAIN), (Life.SIDECAR, Life.MAIN), (Life.SIDECAR, Life.INIT), (Life.INIT, Life.INIT)):
        for each, other in product(COARSE, repeat=2):
            yield ((each, lives[0]), (other, lives[1]))


# -- brute force


@cache
def is_room(state: Piece | None, here: Asked) -> bool:
    """Whether a card in this state takes these pieces of one pod, the rules written down one by one."""
    ways = {"mps" if piece.way == "mps" else "shared" for piece, _ in here}
    taken_in = set() if state is None else {"mps" if state.way == "mps" else "shared"}
    if len(ways | taken_in) > 1:
        return False
    cores, memory = (FULL, FULL) if state is None else (FULL - state.cores, FULL - state.memory)
    if cores == 0:
        return False
    sidecars = [piece for piece, life in here if life is Life.SIDECAR]
    running = sidecars + [piece for piece, life in here if life is Life.MAIN]
    moments = [running]
    for place, (piece, life) in enumerate(here):
        if life is Life.INIT:
            moments.append([piece, *(other for other, kind in here[:place] if kind is Life.SIDECAR)])
    return all(sum(p.cores for p in now) <= cores and sum(p.memory for p in now) <= memory for now in moments)


def brute_force(node: Sequence[Piece | None], asked: Asked) -> bool:
    rows = range(len(node))
    for chosen in product(*(combinations(rows, piece.cards) for piece, _ in asked)):
        if all(
            is_room(node[row], here)
            for row in rows
            if (here := tuple(part for part, cards in zip(asked, chosen, strict=True) if row in cards))
        ):
            return True
    return False


# -- the same for the engine


def part_of(piece: Piece) -> Part:
    if piece.way == "whole":
        return Part(cards=piece.cards, whole=True)
    slots = piece.cores if piece.way == "mps" else 0
    return Part(cards=piece.cards, cores=piece.cores * 50, memory=Memory(piece.memory * UNIT), slots=slots)


def charge_of(piece: Piece) -> Charge:
    slots = piece.cores if piece.way == "mps" else 0
    return Charge(piece.cores * 50, piece.memory * UNIT, slots, shares=0 if slots else 1)


def request_of(asked: Asked) -> Request:
    containers = (ContainerRequest(f"c{place}", part_of(piece), life) for place, (piece, life) in enumerate(asked))
    return Request("u", "default/p", "aliquot", tuple(containers))


def state_of(number: int, node: Sequence[Piece | None]) -> NodeState:
    name = f"n{number}"
    gpus = tuple(make_gpu(index, name, mib=FULL * UNIT, slots=FULL) for index in range(len(node)))
    used = {gpu.uuid: charge_of(piece) for gpu, piece in zip(gpus, node, strict=True) if piece is not None}
    return NodeState(NodeGpus(name, gpus, 1), used)


@pytest.fixture(scope="module")
def states() -> list[NodeState]:
    return [state_of(number, node) for number, node in enumerate(NODES)]


@pytest.fixture(scope="module")
def fleet(states: list[NodeState]) -> Fleet:
    fleet = Fleet()
    for state in states:
        fleet.put(state.cards, state.used)
    return fleet


@pytest.mark.parametrize(
    "requests",
    [pytest.param(requests_of_mains, id="main containers"), pytest.param(requests_with_lives, id="init and sidecars")],
)
def test_every_request_fits_exactly_on_the_states_where_brute_force_finds_a_way(
    requests: Callable[[], Iterator[Asked]], fleet: Fleet
) -> None:
    for asked in requests():
        found = judge(fleet, request_of(asked)).fits.tolist()
        expected = [brute_force(node, asked) for node in NODES]
        assert found == expected, (asked, [node for node, a, b in zip(NODES, found, expected, strict=True) if a != b])


def test_the_search_agrees_with_brute_force_too(states: list[NodeState]) -> None:
    cases = [
        (number, asked) for asked in (*requests_of_mains(), *requests_with_lives()) for number in range(len(NODES))
    ]
    for number, asked in cases[::211]:
        found = arrange(states[number], request_of(asked)) is not None
        assert found is brute_force(NODES[number], asked), (NODES[number], asked)
