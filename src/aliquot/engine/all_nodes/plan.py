"""Where a request fits and which cards it would get, on all nodes at once.

A single container, and containers that share their cards, need no search: if they fit at all, they fit on the k best
cards. Several containers are first placed greedily on all nodes at once. Only nodes on which the greedy choice fails
and that might have room are searched, as long as the decision's effort lasts (`all_nodes.node_search`). Where another
agent chooses the cards, nothing is searched: that agent finds no more than its own greedy choice.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from aliquot.engine.all_nodes.greedy import Greedy
from aliquot.engine.all_nodes.node_search import NodeSearch
from aliquot.engine.all_nodes.originals import Originals
from aliquot.engine.all_nodes.question import Question
from aliquot.engine.all_nodes.room import need_of, takes, together
from aliquot.engine.arrays import Bools, Ints, Ranks, enough, lowest, masked
from aliquot.engine.one_node.puzzle import Cards
from aliquot.engine.view import View
from aliquot.model import Life


class Plan(ABC):
    """Rows are computed when they are asked for."""

    fits: Bools
    limited: Bools
    """Columns where the search was given up or not begun."""
    searched: Sequence[int] = ()
    """Columns that were searched at all."""
    views: Sequence[View]
    lives: Sequence[Life]

    def __init__(self, question: Question) -> None:
        self.question = question
        self.limited = np.zeros(question.fleet.width, np.bool_)
        self._originals = Originals(question)

    def rows_at(self, column: int) -> Sequence[Cards]:
        """The rows of each view, in a column that fits."""
        return self._originals.rows_at(column) or self._own_rows_at(column)

    @cached_property
    def rows(self) -> Sequence[Ints]:
        """The rows of each view, [count, width]. Columns that do not fit hold arbitrary rows."""
        if not self._originals.policies:
            return self._own_rows
        rows = [own.copy() for own in self._own_rows]
        for column in np.flatnonzero(self.fits).tolist():
            for into, cards in zip(rows, self._originals.rows_at(column) or (), strict=False):
                into[:, column] = cards
        return rows

    @abstractmethod
    def _own_rows_at(self, column: int) -> Sequence[Cards]: ...

    @property
    @abstractmethod
    def _own_rows(self) -> Sequence[Ints]: ...


def plan(question: Question) -> Plan:
    if not question.request.containers:
        return PlanForNone(question)
    return PlanForMany(question) if question.request.needs_search else PlanForOne(question)


class PlanForNone(Plan):
    """For a pod without GPU: every node has room for it, as far as cards go."""

    views, lives = (), ()
    _own_rows = ()

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self.fits = np.array([bool(name) for name in question.fleet.names], np.bool_)

    def _own_rows_at(self, _: int) -> Sequence[Cards]:
        return ()


class PlanForOne(Plan):
    """For one container, or several on the same cards."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        containers = question.request.containers
        needs = [need_of(question.fleet, container.part) for container in containers]
        need = needs[0]
        part = containers[0].part
        possible = question.possible(question.room, need)
        if len(containers) > 1:
            need = together(list(zip((container.life for container in containers), needs, strict=True)))
            part = replace(part, cards=max(container.part.cards for container in containers))
            possible &= question.possible(question.room, need)
            for other in needs[1:]:
                possible &= takes(question.fleet, question.room, other)
        self.view = question.view(part, need, question.room, possible)
        self.views = [self.view]
        self.lives = [Life.MAIN]
        self.fits = enough(possible, part.cards)
        self._connected_rows: Ints | None = None
        if question.is_connected(part):
            self._connected_rows, self.fits = question.connected(self.view, self.ranks, self.fits)

    @cached_property
    def ranks(self) -> Ranks:
        return self.question.rank(self.view)

    def _own_rows_at(self, column: int) -> Sequence[Cards]:
        if self._connected_rows is not None:
            return [tuple(sorted(self._connected_rows[:, column].tolist()))]
        possible, full = self.view.possible[:, column].tolist(), self.ranks.shape == self.view.possible.shape
        ranks = (self.ranks if full else np.broadcast_to(self.ranks, self.view.possible.shape))[:, column].tolist()
        rows = sorted((row for row, here in enumerate(possible) if here), key=ranks.__getitem__)
        return [tuple(sorted(rows[: self.view.count]))]

    @cached_property
    def _own_rows(self) -> Sequence[Ints]:
        if self._connected_rows is not None:
            return [self._connected_rows]
        return [lowest(masked(self.view.possible, self.ranks), self.view.count)]


class PlanForMany(Plan):
    """For several containers, each on its own cards."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        containers = question.request.containers
        self.lives = [container.life for container in containers]
        self._parts = [container.part for container in containers]
        self._needs = [need_of(question.fleet, part) for part in self._parts]
        self._alone = [question.possible(question.room, need) for need in self._needs]
        is_theirs = bool(question.request.allocator)
        greedy = Greedy(question, self._parts, self._needs, self.lives, in_order=is_theirs)
        self.views = greedy.views
        self._greedy_rows = greedy.rows
        self.fits = greedy.fits
        searching = NodeSearch(question, self._parts, self._needs, self.lives, self._alone, self.views[0])
        if not is_theirs:
            searching.run(self._may_fit() & ~self.fits)
        self.searched, self.limited, self._searched = searching.visited, searching.limited, searching.found
        self.fits[list(self._searched)] = True

    def _own_rows_at(self, column: int) -> Sequence[Cards]:
        if column in self._searched:
            return self._searched[column]
        return [tuple(sorted(rows[:, column].tolist())) for rows in self._greedy_rows]

    @cached_property
    def _own_rows(self) -> Sequence[Ints]:
        for column, chosen in self._searched.items():
            for rows, cards in zip(self._greedy_rows, chosen, strict=True):
                rows[:, column] = cards
        return self._greedy_rows

    def _may_fit(self) -> Bools:
        """A necessary condition: enough cards for each container alone, and in total as much as all containers need."""
        question, room = self.question, self.question.room
        may = np.ones(question.fleet.width, np.bool_)
        useful = np.zeros(question.fleet.has.shape, np.bool_)
        mib, cores = list[Ints](), list[Ints]()
        running = [part.cards for part, life in zip(self._parts, self.lives, strict=True) if life is not Life.INIT]
        for part, need, life, possible in zip(self._parts, self._needs, self.lives, self._alone, strict=True):
            may &= enough(possible, part.cards)
            if life is not Life.INIT:
                useful |= possible
                mib.append(_least(need.mib, possible))
                cores.append(_least(need.cores, possible))
        may &= _is_enough(np.where(useful, room.free_mib, 0), running, mib)
        may &= _is_enough(np.where(useful, room.free_cores, 0), running, cores)
        return may


def _is_enough(free: Ints, counts: Sequence[int], sizes: Sequence[Ints]) -> Bools:
    """Whether the cards have in total as much as all containers need, and for each size room for all parts that are at
    least as large."""
    total = sum((count * size for count, size in zip(counts, sizes, strict=True)), np.asarray(0))
    fits = np.asarray(free.sum(axis=0) >= total)
    for size in sizes:
        larger = sum((count * (other >= size) for count, other in zip(counts, sizes, strict=True)), np.asarray(0))
        fits &= ((free // np.maximum(size, 1)).sum(axis=0) >= larger) | (size == 0)
    return fits


def _least(need: Ints, possible: Bools) -> Ints:
    """The least that the part of a card costs; broadcasts to [width]."""
    if need.ndim < 2:
        return need
    least = np.where(possible, need, np.iinfo(np.int64).max).min(axis=0)
    return np.where(possible.any(axis=0), least, 0)
