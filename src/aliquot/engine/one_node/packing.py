"""Decides for certain whether containers can be packed on cards: exact dynamic programming over the cards.

A state is a vector: how many cards each container still wants. Each card turns every state into new ones, one for each
maximal set of containers that it can hold. States that the remaining cards cannot serve are dropped: under any weights
of the containers, what is left must not weigh more than the remaining cards can hold.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from aliquot.engine.effort import Effort, endless
from aliquot.engine.one_node.puzzle import Puzzle
from aliquot.engine.one_node.repair import mend

_MAX_CONTAINERS = 12
_MAX_VECTORS = 1 << 62
"""Beyond these there are too many sets to list or vectors to number."""
_WIDTHS = (400, 3_000, 20_000, 1_000_000)
"""Vectors kept per card: few find most packings fast, many decide for certain."""
_MAX_WORK = 20_000_000
"""Vectors made in total before the search is given up."""
_CHUNK = 1 << 21
_ROUNDS = 120
_CROWD = 400
_SAMPLES = 3
_MAX_WEIGHTS = 80
_SET_UP_STEPS = 8_000
_PRICE_STEPS = 2_000
"""Fixed costs of setting up the programme and of finding weights, in steps of the effort."""
_SLIGHT = 1e-6


@dataclass(frozen=True)
class Packed:
    """The containers that each card holds, as bits. None if no packing was found; `limited` if one may still exist."""

    members: Sequence[int] | None
    limited: bool = False


def pack(puzzle: Puzzle, effort: Effort | None = None) -> Packed:
    """Ignores the topology, which the caller checks."""
    effort = effort or endless()
    programme = programme_of(puzzle, effort)
    if programme is None:
        return Packed(None, limited=True)
    if programme.is_hopeless():
        return Packed(None)
    found = programme.run(_WIDTHS[0], effort)
    if found.limited and (members := programme.mend(effort)) is not None:
        return Packed(members)
    for width in _WIDTHS[1:]:
        if not found.limited:
            break
        found = programme.run(width, effort)
    return found


def programme_of(puzzle: Puzzle, effort: Effort) -> "Programme | None":
    """None if it would be too large, or if too little effort is left."""
    if len(puzzle.wants) > _MAX_CONTAINERS or prod(want + 1 for want in puzzle.wants) > _MAX_VECTORS:
        return None
    cells = len(puzzle.free) << len(puzzle.wants)
    return Programme(puzzle) if effort.take(_SET_UP_STEPS + cells * 3 // 2) else None


class Programme:
    """Which sets of containers each card holds, under which weights the cards are tight, and the transitions from card
    to card."""

    def __init__(self, puzzle: Puzzle) -> None:
        self.puzzle = puzzle
        self.classes = _classes(puzzle)
        # equal containers take turns, those that want most first: only the first of a class are ever taken
        self.order = [
            member for alike in self.classes for member in sorted(alike, key=lambda member: -puzzle.wants[member])
        ]
        self.wants = np.array([puzzle.wants[member] for member in self.order], np.int16)
        self.radix = np.concatenate(([1], np.cumprod(self.wants[:-1].astype(np.int64) + 1)))
        self.sets = (np.arange(1 << len(self.order))[:, np.newaxis] >> np.arange(len(self.order))) & 1
        self.overload = _overload(puzzle, self.order, self.sets)
        self.holds = (self.overload == 0) & self._in_turns()
        largest = [np.flatnonzero(self._is_largest(holds)) for holds in self.holds]
        self.cards = sorted(range(len(puzzle.free)), key=lambda card: (len(largest[card]), largest[card].tolist()))
        self.steps = [self.sets[largest[card]].astype(np.int16) for card in self.cards]
        self.weights = np.zeros((len(self.order), 0), np.float32)
        self.rest = np.zeros((len(self.cards) + 1, 0), np.float32)
        """How much the cards from each layer on can hold, under each of the weights."""
        self._add_weights(self._first_weights())

    # -- sets of containers

    def _spans(self) -> Iterator[slice]:
        """The slice of each class in the order."""
        start = 0
        for alike in self.classes:
            yield slice(start, start + len(alike))
            start += len(alike)

    def _in_turns(self) -> NDArray[np.bool_]:
        fair = np.ones(len(self.sets), np.bool_)
        for span in self._spans():
            fair &= (np.diff(self.sets[:, span], axis=1) <= 0).all(axis=1)
        return fair

    def _is_largest(self, holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
        largest = holds.copy()
        numbers = np.arange(len(self.sets))
        for member in range(len(self.order)):
            largest &= (self.sets[:, member] == 1) | ~holds[numbers | 1 << member]
        return largest

    # -- bounds

    def _first_weights(self) -> Iterator[NDArray[np.float64]]:
        """Weights under which the cards are tight: each class alone, all containers equal, and by the price of their
        needs.

        Equal containers must weigh the same, because it is arbitrary which of them a card is said to hold.
        """
        for span in self._spans():
            alone = np.zeros(len(self.order))
            alone[span] = 1.0
            yield alone
        yield np.ones(len(self.order))
        yield self._priced(np.ones(len(self.order)), self.wants, 0)
        for measure in range(3):
            sizes = np.array(
                [min(size[measure] for size in self.puzzle.needs[member]) for member in self.order], np.float64
            )
            if sizes.any():
                yield self._priced(sizes / sizes.max(), self.wants, 0)

    def _priced(self, weights: NDArray[np.float64], wants: NDArray[np.int16], layer: int) -> NDArray[np.float64]:
        """The weights under which the wants come closest to, or exceed, what the cards from `layer` on can hold. Prices
        go up for containers of which the cards hold too few, and down for the others."""
        holds = self.holds[self.cards[layer:]]
        best, least_slack = weights, np.inf
        for turn in range(_ROUNDS):
            values = np.where(holds, self.sets @ weights, -1.0)
            chosen = values.argmax(axis=1)
            wanted = float(weights @ wants)
            slack = float(values[np.arange(len(chosen)), chosen].sum()) / wanted - 1.0 if wanted else np.inf
            if slack < least_slack:
                best, least_slack = weights, slack
            if slack < -_SLIGHT:
                break
            surplus = self.sets[chosen].sum(axis=0) - wants
            weights = np.maximum(0.0, weights - 2 * weights.mean() * surplus / (2.0 + turn) / max(1, wants.max()))
            for span in self._spans():
                weights[span] = weights[span].mean()
            if not weights.any():
                break
        return best

    def _add_weights(self, weights: Iterable[NDArray[np.float64]]) -> None:
        added = np.array(list(weights)).T
        values = self.sets @ added
        most = np.array([values[self.holds[card]].max(axis=0) for card in self.cards])
        rest = np.zeros((len(self.cards) + 1, added.shape[1]))
        rest[:-1] = most[::-1].cumsum(axis=0)[::-1]
        self.weights = np.hstack((self.weights, added.astype(np.float32)))
        # slightly more than exact, so that rounding never drops a solution
        self.rest = np.hstack(
            (self.rest, (rest * (1 + _SLIGHT) + _SLIGHT).astype(np.float32) * np.float32(1 + _SLIGHT))
        )

    def _learn(self, states: NDArray[np.int16], layer: int, effort: Effort) -> None:
        """Adds weights that separate the remaining vectors, priced for a few of them."""
        cost = _SAMPLES * (_PRICE_STEPS + self.holds.size * 2 // 5)
        if self.weights.shape[1] < _MAX_WEIGHTS and effort.take(cost):
            some = states[np.linspace(0, len(states) - 1, _SAMPLES).astype(np.int64)]
            tightest = ((some @ self.weights) / self.rest[layer]).argmax(axis=1)
            starts = self.weights.T[tightest].astype(np.float64)
            self._add_weights(self._priced(start, wants, layer) for start, wants in zip(starts, some, strict=True))

    def is_hopeless(self) -> bool:
        return bool((self.wants @ self.weights > self.rest[0]).any())

    # -- the programme

    def mend(self, effort: Effort) -> Sequence[int] | None:
        mended = mend(self.overload.tolist(), self.wants.tolist(), effort)
        return None if mended is None else self.in_puzzle(mended)

    def in_puzzle(self, members: Sequence[int]) -> Sequence[int]:
        """Translates containers from the programme's order to the puzzle's numbers."""
        return [sum(1 << member for place, member in enumerate(self.order) if here >> place & 1) for here in members]

    def run(self, width: int, effort: Effort) -> Packed:
        states = self.wants[np.newaxis]
        history: list[tuple[NDArray[np.int32], NDArray[np.int16]]] = []
        limited = False
        work = 0
        for layer, steps in enumerate(self.steps):
            made = len(states) * len(steps)
            work += made
            if work > _MAX_WORK or not effort.take(made * (20 + self.weights.shape[1]) // 60):
                return Packed(None, limited=True)
            if len(states) > _CROWD:
                self._learn(states, layer, effort)
            states, came_from, by_step, cut = self._advance(states, steps, self.rest[layer + 1], width)
            limited |= cut
            if not len(states):
                return Packed(None, limited)
            history.append((came_from.astype(np.int32), by_step.astype(np.int16)))
            if not states[0].any():
                return Packed(self._replay(history))
        return Packed(None, limited)

    def _advance(
        self,
        states: NDArray[np.int16],
        steps: NDArray[np.int16],
        rest: NDArray[np.float32],
        width: int,
    ) -> tuple[NDArray[np.int16], NDArray[np.int64], NDArray[np.int64], bool]:
        """Every vector that the next card leads to: the vectors, their predecessors, the sets used, and whether some
        were cut."""
        per_chunk = max(1, _CHUNK // len(steps))
        parts = [
            self._expand(states[start : start + per_chunk], start, steps, rest)
            for start in range(0, len(states), per_chunk)
        ]
        keys, reached, came_from, by_step, tight = (np.concatenate(column) for column in zip(*parts, strict=True))
        if len(parts) > 1:
            _, first = np.unique(keys, return_index=True)
            reached, came_from, by_step, tight = reached[first], came_from[first], by_step[first], tight[first]
        cut = len(reached) > width
        best = np.argsort(tight, kind="stable")[:width] if cut else np.argsort(tight, kind="stable")
        return reached[best], came_from[best], by_step[best], cut

    def _expand(
        self,
        states: NDArray[np.int16],
        offset: int,
        steps: NDArray[np.int16],
        rest: NDArray[np.float32],
    ) -> tuple[NDArray[np.int64], NDArray[np.int16], NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        count = len(self.order)
        reached = np.maximum(states[:, np.newaxis] - steps[np.newaxis], 0).reshape(-1, count)
        for span in self._spans():
            if span.stop - span.start > 1:
                reached[:, span] = -np.sort(-reached[:, span], axis=1)
        weighed = reached.astype(np.float32) @ self.weights
        alive = np.flatnonzero((weighed <= rest).all(axis=1))
        reached = reached[alive]
        keys = reached.astype(np.int64) @ self.radix
        _, first = np.unique(keys, return_index=True)
        alive, reached, keys = alive[first], reached[first], keys[first]
        tight = (weighed[alive] / np.maximum(rest, np.float32(_SLIGHT))).max(axis=1)
        return keys, reached, alive // len(steps) + offset, alive % len(steps), tight

    def _replay(self, history: Sequence[tuple[NDArray[np.int32], NDArray[np.int16]]]) -> Sequence[int]:
        """The path to the first vector of the last card, as containers per card."""
        taken: list[int] = []
        at = 0
        for came_from, by_step in reversed(history):
            taken.append(int(by_step[at]))
            at = int(came_from[at])
        taken.reverse()
        left = dict(zip(self.order, self.wants.tolist(), strict=True))
        members = [0] * len(self.puzzle.free)
        for layer, step in enumerate(taken):
            card = self.cards[layer]
            for span, alike in zip(self._spans(), self.classes, strict=True):
                count = int(self.steps[layer][step, span].sum())
                for member in sorted(alike, key=lambda member: -left[member])[:count]:
                    if left[member]:
                        left[member] -= 1
                        members[card] |= 1 << member
        return members


def _classes(puzzle: Puzzle) -> list[list[int]]:
    """Containers that differ only in how many cards they want. Sidecars of a class also run with the same init
    containers."""
    classes: dict[object, list[int]] = {}
    for member, life in enumerate(puzzle.lives):
        runs_beside = tuple(init for init, sidecars in enumerate(puzzle.sidecars_of) if sidecars >> member & 1)
        key = (tuple(puzzle.needs[member]), puzzle.allowed[member], life, puzzle.sidecars_of[member], runs_beside)
        classes.setdefault(key, []).append(member)
    return list(classes.values())


def _overload(puzzle: Puzzle, order: Sequence[int], sets: NDArray[np.int64]) -> NDArray[np.float64]:
    """[cards, sets]: how much of a card each set of containers exceeds it by; 0 if the card holds the set."""
    place = {member: at for at, member in enumerate(order)}
    needs = np.array([puzzle.needs[member] for member in order], np.float64)
    free = np.array(puzzle.free, np.float64)
    refused = np.array(
        [[~puzzle.allowed[member] >> card & 1 for card in range(len(free))] for member in order], np.float64
    )
    overload = (sets @ refused).T
    by_slots = np.array([puzzle.by_slots >> member & 1 for member in order], np.bool_)
    overload += sets[:, by_slots].any(axis=1) & sets[:, ~by_slots].any(axis=1)
    for about, members in _phases(puzzle):
        among = np.zeros(len(order), np.int64)
        among[[place[member] for member in members]] = 1
        sums = np.einsum("so,ocm->csm", (sets * among).astype(np.float64), needs)
        beyond = (np.maximum(0.0, sums - free[:, np.newaxis]) / np.maximum(1.0, free.mean(axis=0))).sum(axis=2)
        overload += beyond if about is None else beyond * sets[:, place[about]]
    return overload


def _phases(puzzle: Puzzle) -> Iterator[tuple[int | None, list[int]]]:
    """Which containers run at the same time: the init container of the phase, if any, and all its members."""
    everyone = range(len(puzzle.wants))
    yield None, [member for member in everyone if puzzle.running >> member & 1]
    for member in everyone:
        if not puzzle.running >> member & 1:
            yield member, [other for other in everyone if (puzzle.sidecars_of[member] | 1 << member) >> other & 1]
