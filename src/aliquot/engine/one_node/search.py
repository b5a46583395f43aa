"""The cards of one node for a whole pod: a complete search, so that no pod is refused that would fit.

First comes a dive: container by container, the largest first, with cards in the policy's order and backtracking. Nearly
always that succeeds at once. If it takes too long, `packing` decides whether there is a placement at all, or
`connected` if the cards of a container must be connected.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from aliquot.engine.effort import Effort, endless
from aliquot.engine.one_node.puzzle import Cards, Puzzle, bits, puzzle_of
from aliquot.engine.state import NodeState
from aliquot.engine.topology import allows, connected_sets, in_reach
from aliquot.model import Gpu, Life, Request, Topology

_GLANCE = 60
_DIVE = 1_500
_LONG_DIVE = 10_000
"""Sets of cards to try: at a glance, before another method is tried, and before the search is given up."""


@dataclass(frozen=True)
class SearchResult:
    """The cards of each container. None if there is no placement or, if `limited`, if none was found in time."""

    cards: Sequence[Cards] | None
    limited: bool = False


def arrange(
    state: NodeState, request: Request, rank: Callable[[Gpu], Any] | None = None
) -> Mapping[str, tuple[Gpu, ...]] | None:
    """The cards of each container by its name; None if the pod does not fit. Prefers low ranks, then low rows."""
    gpus = state.cards.gpus
    ranks = [rank(gpu) for gpu in gpus] if rank else None
    found = search(puzzle_of(state, request), together=request.together, ranks=ranks)
    if found.cards is None:
        return None
    names = (container.name for container in request.containers)
    return {name: tuple(gpus[row] for row in rows) for name, rows in zip(names, found.cards, strict=True)}


def search(
    puzzle: Puzzle,
    *,
    together: bool = False,
    ranks: Sequence[Any] | None = None,
    dive_steps: int = _DIVE,
    effort: Effort | None = None,
) -> SearchResult:
    """Gives up when the `effort` runs out."""
    effort = effort or endless()
    order = _order(puzzle, ranks)
    if together:
        return _search_together(puzzle, order, effort)
    if _is_hopeless(puzzle):
        return SearchResult(None)
    found = _dive(puzzle, order, dive_steps, effort)
    return _decide(puzzle, order, effort) if found.limited else found


def glance(puzzle: Puzzle, *, ranks: Sequence[Any] | None = None, effort: Effort | None = None) -> SearchResult:
    """A first look: finds easy placements and leaves the rest undecided. Without effort it dives once, which costs no
    more than choosing cards for each container."""
    if _is_hopeless(puzzle):
        return SearchResult(None)
    once = len(puzzle.wants)
    return _dive(puzzle, _order(puzzle, ranks), once if effort is None else _GLANCE, effort or endless())


def _order(puzzle: Puzzle, ranks: Sequence[Any] | None) -> list[int]:
    rows = range(len(puzzle.free))
    return sorted(rows, key=lambda row: (ranks[row], row)) if ranks is not None else list(rows)


def _is_hopeless(puzzle: Puzzle) -> bool:
    return any(allowed.bit_count() < want for allowed, want in zip(puzzle.allowed, puzzle.wants, strict=True))


def _search_together(puzzle: Puzzle, order: Sequence[int], effort: Effort) -> SearchResult:
    everyone = (1 << len(puzzle.wants)) - 1
    allowed = sum(1 << row for row in order if puzzle.holds(row, everyone))
    merged = replace(
        puzzle,
        wants=[max(puzzle.wants)],
        needs=[[(0, 0, 0)] * len(order)],
        allowed=[allowed],
        lives=[Life.MAIN],
        _holds={},
    )
    found = search(merged, ranks=[order.index(row) for row in range(len(order))], effort=effort)
    if found.cards is None:
        return found
    (cards,) = found.cards
    if puzzle.wiring is not None:
        cards = in_reach(puzzle.wiring, cards, puzzle.topology)
    return SearchResult([tuple(sorted(cards[:want])) for want in puzzle.wants])


def works(puzzle: Puzzle, cards: Sequence[Cards]) -> bool:
    """Whether these cards are a valid placement."""
    members = [0] * len(puzzle.free)
    for container, (rows, want) in enumerate(zip(cards, puzzle.wants, strict=True)):
        if len(set(rows)) != want or len(rows) != want:
            return False
        for row in rows:
            members[row] |= 1 << container
    if puzzle.topology is not Topology.ANY and not _is_connected(puzzle, cards):
        return False
    return all(puzzle.holds(row, here) for row, here in enumerate(members) if here)


# -- the dive


def _dive(puzzle: Puzzle, order: Sequence[int], steps: int, effort: Effort) -> SearchResult:
    dive = _Dive(puzzle, order, steps, effort)
    if dive.place(0):
        return SearchResult([tuple(sorted(cards)) for cards in dive.chosen])
    return SearchResult(None, limited=dive.steps < 0)


class _Dive:
    def __init__(self, puzzle: Puzzle, order: Sequence[int], steps: int, effort: Effort) -> None:
        self.puzzle = puzzle
        self.order = order
        self.steps = steps
        self.effort = effort
        containers = len(puzzle.wants)
        self.cost = 4 + containers * len(order) // 16 + containers * containers // 40
        """The cost of one set, in steps of the effort. Room is looked up for every container and card, and recomputed
        for changed cards, which hold many containers."""
        self.members = [0] * len(order)
        self.chosen: list[Cards] = [()] * len(puzzle.wants)
        self.sequence = sorted(range(len(puzzle.wants)), key=self._size, reverse=True)

    def _size(self, container: int) -> tuple[bool, float, int]:
        """Init containers come last: they use what the pod pays for anyway."""
        puzzle = self.puzzle
        shares = (
            sum(size / max(1, free) for size, free in zip(puzzle.needs[container][row], puzzle.free[row], strict=True))
            for row in bits(puzzle.allowed[container])
        )
        return bool(puzzle.running >> container & 1), max(shares, default=0.0), puzzle.wants[container]

    def place(self, at: int) -> bool:
        if at == len(self.sequence):
            return True
        container = self.sequence[at]
        for cards in self._sets(container):
            self.steps -= 1
            if self.steps < 0 or not self.effort.take(self.cost):
                self.steps = -1
                return False
            for row in cards:
                self.members[row] |= 1 << container
            self.chosen[container] = cards
            if all(self._has_room(later) for later in self.sequence[at + 1 :]) and self.place(at + 1):
                return True
            for row in cards:
                self.members[row] ^= 1 << container
        return False

    def _sets(self, container: int) -> Iterator[Cards]:
        puzzle, want = self.puzzle, self.puzzle.wants[container]
        rows = self._possible(container)
        if not puzzle.running >> container & 1:
            rows.sort(key=lambda row: not self.members[row])
        if want == 1 or puzzle.topology is Topology.ANY or puzzle.wiring is None:
            yield from combinations(rows, want)
        else:
            yield from connected_sets(puzzle.wiring, puzzle.topology, rows, want)

    def _possible(self, container: int) -> list[int]:
        holds, members, bit = self.puzzle.holds, self.members, 1 << container
        return [row for row in self.order if holds(row, members[row] | bit)]

    def _has_room(self, container: int) -> bool:
        holds, members, bit = self.puzzle.holds, self.members, 1 << container
        left = self.puzzle.wants[container]
        for row in self.order:
            if holds(row, members[row] | bit):
                left -= 1
                if not left:
                    return True
        return left <= 0


# -- the decision


def _decide(puzzle: Puzzle, order: Sequence[int], effort: Effort) -> SearchResult:
    from aliquot.engine.one_node.connected import connect  # with arrays, which few searches need
    from aliquot.engine.one_node.packing import pack

    packed = connect(puzzle, effort) if puzzle.is_picky else pack(puzzle, effort)
    if packed.limited:
        return _dive(puzzle, order, _LONG_DIVE, effort)
    return SearchResult(None if packed.members is None else _by_container(puzzle, packed.members))


def _by_container(puzzle: Puzzle, members: Sequence[int]) -> list[Cards]:
    return [
        tuple(row for row, here in enumerate(members) if here >> container & 1)
        for container in range(len(puzzle.wants))
    ]


def _is_connected(puzzle: Puzzle, cards: Sequence[Cards]) -> bool:
    assert puzzle.wiring is not None, "only called with a topology"
    return all(allows(puzzle.wiring, rows, puzzle.topology) for rows in cards)
