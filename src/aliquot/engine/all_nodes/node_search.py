"""Searches every node on which the greedy choice failed and that might still have room, with one effort for all of
them.

First it takes a glance at each node, the emptiest first, which finds easy placements wherever they are. The rest of the
effort goes into a thorough search on one node after another. Nothing is known of nodes that the effort does not reach.
"""

import marshal
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np

from aliquot.engine.all_nodes.question import Question
from aliquot.engine.all_nodes.room import Need
from aliquot.engine.arrays import Bools, Ints, Ranks
from aliquot.engine.effort import Effort
from aliquot.engine.one_node.puzzle import Cards, Puzzle, Size
from aliquot.engine.one_node.search import SearchResult, glance, search
from aliquot.engine.view import View
from aliquot.model import Life, Part, Topology

_MAX_REMEMBERED = 1_000


@dataclass(frozen=True)
class _Node:
    """A node as a puzzle. Its rows are the node's cards, the preferred ones first, so that nodes that differ only in
    the order of their cards are alike. If cards must be connected, they keep their order and have `ranks`."""

    puzzle: Puzzle
    rows: Sequence[int]
    """The rows of the Fleet, by the puzzle's rows."""
    ranks: Sequence[int] | None


@dataclass
class _Alike:
    """Nodes on which the request has the same result, by column with their rows. None: the result is not known yet."""

    result: SearchResult | None
    nodes: dict[int, Sequence[int]] = field(default_factory=dict)


class NodeSearch:
    """`alone` are, per container, the cards [rows, width] that could take it if it were alone. `first` is the first
    container's view of the cards."""

    def __init__(
        self,
        question: Question,
        parts: Sequence[Part],
        needs: Sequence[Need],
        lives: Sequence[Life],
        alone: Sequence[Bools],
        first: View,
    ) -> None:
        self.question = question
        self.limited = np.zeros(question.fleet.width, np.bool_)
        self.found: dict[int, Sequence[Cards]] = {}
        self.visited: list[int] = []
        self._wants, self._needs, self._lives, self._alone = [part.cards for part in parts], needs, lives, alone
        self._first = first
        self._set_up = 40 + 8 * len(parts)
        """Steps that it takes to turn a node into a puzzle."""

    def run(self, columns: Bools) -> None:
        effort, among = self.question.effort, self.question.among
        self.limited |= columns
        (worth,) = (columns if among is None else columns & among).nonzero()
        if not len(worth):
            return
        part = effort.half()
        of_key = self._glance(self._emptiest_first(worth), part)
        effort.settle(part)
        for key, alike in of_key.items():
            if alike.result is None and not effort.ran_out:
                alike.result = _searched(key, self._node(next(iter(alike.nodes))), effort)
            self._note(alike)
        effort.ran_out |= part.ran_out

    def _emptiest_first(self, columns: Ints) -> list[int]:
        """By free memory, then by name, so that the order in which nodes appeared does not matter."""
        free, names = self.question.room.free_mib[:, columns].sum(axis=0).tolist(), self.question.fleet.names
        by_size = sorted(zip(free, columns.tolist(), strict=True), key=lambda node: (-node[0], names[node[1]]))
        return [column for _, column in by_size]

    def _glance(self, columns: Sequence[int], effort: Effort) -> dict[bytes, _Alike]:
        of_key: dict[bytes, _Alike] = {}
        for column in columns:
            self.visited.append(column)
            if not effort.take(self._set_up):
                break
            node = self._node(column)
            key = _key(node)
            if key not in of_key:
                found = glance(node.puzzle, ranks=node.ranks, effort=effort)
                of_key[key] = _Alike(None if found.limited else found)
            of_key[key].nodes[column] = node.rows
        return of_key

    def _note(self, alike: _Alike) -> None:
        result = alike.result or SearchResult(None, limited=True)
        for column, rows in alike.nodes.items():
            self.limited[column] = result.cards is None and result.limited
            if result.cards is not None:
                self.found[column] = [tuple(sorted(rows[card] for card in cards)) for cards in result.cards]

    def _node(self, column: int) -> _Node:
        question, fleet = self.question, self.question.fleet
        cards = len(fleet.state_at(column).cards.gpus)
        by_rank = np.argsort(self._ranks[:cards, column], kind="stable")
        is_connected = question.topology is not Topology.ANY
        order = np.arange(cards) if is_connected else by_rank
        room = question.room
        puzzle = Puzzle(
            free=_sizes((room.free_mib, room.free_cores, room.free_slots), order, column),
            wants=self._wants,
            needs=[_sizes(sizes, order, column) for sizes in self._need_sizes],
            allowed=[
                sum(1 << row for row, here in enumerate(possible[order, column].tolist()) if here)
                for possible in self._alone
            ],
            lives=self._lives,
            topology=question.topology,
            wiring=fleet.wiring(column) if is_connected else None,
        )
        return _Node(puzzle, order.tolist(), by_rank.argsort().tolist() if is_connected else None)

    @cached_property
    def _need_sizes(self) -> Sequence[tuple[Ints, Ints, Ints]]:
        shape = self.question.fleet.has.shape
        return [
            (
                np.broadcast_to(need.mib, shape),
                np.broadcast_to(need.cores, shape),
                np.broadcast_to(np.int64(need.slots), shape),
            )
            for need in self._needs
        ]

    @cached_property
    def _ranks(self) -> Ranks:
        """The search's preference for cards: the first container's ranks."""
        return np.broadcast_to(self.question.rank(self._first), self._first.possible.shape)


def _sizes(sizes: tuple[Ints, Ints, Ints], order: Ints, column: int) -> list[Size]:
    mib, cores, slots = (size[order, column].tolist() for size in sizes)
    return list(zip(mib, cores, slots, strict=True))


# -- what was found out before

_remembered: OrderedDict[bytes, tuple[SearchResult, int]] = OrderedDict()
"""A cache of results, with the steps that each took: a scheduler asks to filter, to prioritize and to bind in turn. A
search that was cut short is not cached. A cached result still costs its steps, so that answers do not depend on earlier
questions."""


def _searched(key: bytes, node: _Node, effort: Effort) -> SearchResult:
    if (known := _remembered.get(key)) is not None:
        _remembered.move_to_end(key)
        found, steps = known
        if not effort.take(steps):
            return SearchResult(None, limited=True)
        effort.remembered += steps
        return found
    before = effort.left
    found = search(node.puzzle, ranks=node.ranks, effort=effort)
    if not effort.ran_out:
        _remembered[key] = found, before - effort.left
        if len(_remembered) > _MAX_REMEMBERED:
            _remembered.popitem(last=False)
    return found


def _key(node: _Node) -> bytes:
    """Equal for nodes that are alike, and only for these."""
    puzzle, wiring = node.puzzle, node.puzzle.wiring
    parts: tuple[Any, ...] = (
        list(puzzle.free),
        list(puzzle.wants),
        list(puzzle.allowed),
        [list(sizes) for sizes in puzzle.needs],
        [life.value for life in puzzle.lives],
        puzzle.topology.value,
        (wiring.matrix.tobytes(), wiring.numa, node.ranks) if wiring else None,
    )
    return blake2b(marshal.dumps(parts, 2), digest_size=16).digest()
