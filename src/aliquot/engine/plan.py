"""Where a request fits and which cards it would get, on every node at once.

One container, and containers that share their cards, need no search: the k best cards are a way if there is one. For
several containers greed comes first, on all nodes at once; only where it fails on a node that might do is searched.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from aliquot.engine.choosing import CardChoice, lowest, masked
from aliquot.engine.fleet import Fleet
from aliquot.engine.puzzle import Cards, Puzzle, Size, puzzle_of
from aliquot.engine.room import Need, Room, need_of, takes, together
from aliquot.engine.search import Found, search, works
from aliquot.engine.topology import allowed_sets, best_set
from aliquot.engine.view import Bools, Ints, Ranks, Settings, View
from aliquot.model import Life, Part, Request, Topology


@dataclass(frozen=True)
class Question:
    """What a plan is made for. `allowed` are cards [rows, width] and `nodes` columns that the pod may use."""

    fleet: Fleet
    request: Request
    room: Room
    allowed: Bools | None
    nodes: Bools
    choice: CardChoice | None = None
    """None: any cards will do."""
    settings: Settings = field(default_factory=Settings)
    topology: Topology = Topology.ANY

    def view(self, part: Part, need: Need, room: Room, possible: Bools) -> View:
        return View(
            fleet=self.fleet,
            request=self.request,
            part=part,
            settings=self.settings,
            possible=possible,
            need_mib=need.mib,
            need_cores=need.cores,
            free_mib=room.free_mib,
            free_cores=room.free_cores,
        )

    def possible(self, room: Room, need: Need) -> Bools:
        possible = takes(self.fleet, room, need)
        possible &= self.nodes
        if self.allowed is not None:
            possible &= self.allowed
        return possible

    def rank(self, view: View) -> Ranks:
        return np.zeros(1, np.int64) if self.choice is None else self.choice.rank(view)


class Plan:
    """Rows are worked out when they are asked for."""

    fits: Bools
    limited: Bools
    """Columns where the search was given up."""
    views: Sequence[View]
    lives: Sequence[Life]

    def __init__(self, question: Question) -> None:
        self.question = question
        self.limited = np.zeros(question.fleet.width, np.bool_)

    def rows_at(self, column: int) -> Sequence[Cards]:
        """Per view the rows of a column that fits."""
        return self._original(column) or self._own_rows_at(column)

    @cached_property
    def rows(self) -> Sequence[Ints]:
        """Per view the rows, [count, width]; columns that do not fit hold anything."""
        if not self._asks_originals:
            return self._own_rows
        rows = [own.copy() for own in self._own_rows]
        for column in np.flatnonzero(self.fits).tolist():
            for into, cards in zip(rows, self._original(column) or (), strict=False):
                into[:, column] = cards
        return rows

    def _own_rows_at(self, column: int) -> Sequence[Cards]:
        raise NotImplementedError

    @property
    def _own_rows(self) -> Sequence[Ints]:
        raise NotImplementedError

    @property
    def _asks_originals(self) -> bool:
        choice = self.question.choice
        return choice is not None and choice.arranges and not self.question.request.together

    def _original(self, column: int) -> Sequence[Cards] | None:
        """The cards as an original would choose them, if they are a way at all."""
        question = self.question
        if not self._asks_originals or question.choice is None:
            return None
        state = question.fleet.state_at(column)
        cards = question.choice.arrange(state, question.request, question.settings)
        if cards is None:
            return None
        rows = {gpu.uuid: row for row, gpu in enumerate(state.cards.gpus)}
        chosen = [tuple(rows[gpu.uuid] for gpu in cards[one.name]) for one in question.request.containers]
        possible = (question.allowed is None or question.allowed[row, column] for each in chosen for row in each)
        return chosen if all(possible) and works(puzzle_of(state, question.request), chosen) else None


def plan(question: Question) -> Plan:
    containers = question.request.containers
    return PlanForOne(question) if question.request.together or len(containers) == 1 else PlanForMany(question)


class PlanForOne(Plan):
    """One container, or several on the same cards."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        containers = question.request.containers
        needs = [need_of(question.fleet, container.part) for container in containers]
        need = needs[0]
        part = containers[0].part
        possible = question.possible(question.room, need)
        if len(containers) > 1:
            need = together(zip((container.life for container in containers), needs, strict=True))
            part = replace(part, cards=max(container.part.cards for container in containers))
            possible &= question.possible(question.room, need)
            for other in needs[1:]:
                possible &= takes(question.fleet, question.room, other)
        self.view = question.view(part, need, question.room, possible)
        self.views = [self.view]
        self.lives = [Life.MAIN]
        self.ranks = question.rank(self.view)
        self.fits = _enough(possible, part.cards)
        self._connected = question.topology is not Topology.ANY and part.cards > 1
        if self._connected:
            self.fits = self.fits.copy()
            for column in np.flatnonzero(self.fits).tolist():
                rows = tuple(np.flatnonzero(possible[:, column]).tolist())
                wiring = question.fleet.wiring(column)
                self.fits[column] = bool(best_set(wiring, rows, part.cards, question.topology))

    def _own_rows_at(self, column: int) -> Sequence[Cards]:
        if self._connected:
            return [tuple(self._own_rows[0][:, column].tolist())]
        possible, full = self.view.possible[:, column].tolist(), self.ranks.shape == self.view.possible.shape
        ranks = (self.ranks if full else np.broadcast_to(self.ranks, self.view.possible.shape))[:, column].tolist()
        rows = sorted((row for row, here in enumerate(possible) if here), key=ranks.__getitem__)
        return [tuple(sorted(rows[: self.view.count]))]

    @cached_property
    def keys(self) -> Ranks:
        return masked(self.view.possible, self.ranks)

    @cached_property
    def _own_rows(self) -> Sequence[Ints]:
        if self._connected:
            return [self._connected_rows()]
        return [lowest(self.keys, self.view.count)]

    def _connected_rows(self) -> Ints:
        """Of the sets that are connected as wished the one with the lowest ranks."""
        question, view = self.question, self.view
        chosen = lowest(self.keys, view.count)
        for column in np.flatnonzero(self.fits).tolist():
            keys = self.keys[:, column].tolist()
            rows = tuple(np.flatnonzero(view.possible[:, column]).tolist())
            sets = allowed_sets(question.fleet.wiring(column), rows, view.count, question.topology)
            chosen[:, column] = min(sets, key=lambda rows: (sorted(keys[row] for row in rows), rows))
        return chosen


def _enough(possible: Bools, count: int) -> Bools:
    if count == 1:
        return np.asarray(np.logical_or.reduce(possible, axis=0))
    return np.asarray(np.add.reduce(possible, axis=0, dtype=np.int16) >= count)


class PlanForMany(Plan):
    """Several containers, each on cards of its own choice."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        containers = question.request.containers
        self.lives = [container.life for container in containers]
        self._parts = [container.part for container in containers]
        self._needs = [need_of(question.fleet, part) for part in self._parts]
        self._alone = [question.possible(question.room, need) for need in self._needs]
        self._searched: dict[int, Sequence[Cards]] = {}
        greedy = _Greedy(question, self._parts, self._needs, self.lives)
        self.views = greedy.views
        self._greedy_rows = greedy.rows
        connected = question.topology is not Topology.ANY and max(part.cards for part in self._parts) > 1
        self.fits = np.zeros(question.fleet.width, np.bool_) if connected else greedy.fits
        self._search(np.flatnonzero(self._may_fit() & ~self.fits).tolist())

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
        """What must hold where there is a way: enough cards for each alone, and in all as much as all need."""
        question, room = self.question, self.question.room
        may = np.ones(question.fleet.width, np.bool_)
        useful = np.zeros(question.fleet.has.shape, np.bool_)
        mib, cores = np.zeros((2, question.fleet.width), np.int64)
        for part, need, life, possible in zip(self._parts, self._needs, self.lives, self._alone, strict=True):
            may &= _enough(possible, part.cards)
            if life is not Life.INIT:
                useful |= possible
                mib += part.cards * _least(need.mib, possible)
                cores += part.cards * _least(need.cores, possible)
        may &= np.where(useful, room.free_mib, 0).sum(axis=0) >= mib
        may &= np.where(useful, room.free_cores, 0).sum(axis=0) >= cores
        return may

    def _search(self, columns: Sequence[int]) -> None:
        known: dict[object, Found] = {}
        for column in columns:
            puzzle, ranks = self._puzzle(column)
            wiring = self.question.fleet.wiring_id[column] if puzzle.wiring else 0
            key = (*map(tuple, (puzzle.free, puzzle.allowed, ranks)), tuple(map(tuple, puzzle.needs)), wiring)
            if key not in known:
                known[key] = search(puzzle, ranks=ranks)
            found = known[key]
            self.limited[column] = found.limited and found.cards is None
            if found.cards is not None:
                self.fits[column] = True
                self._searched[column] = found.cards

    def _puzzle(self, column: int) -> tuple[Puzzle, Sequence[float]]:
        question, shape = self.question, self.question.fleet.has.shape
        room, cards = question.room, len(question.fleet.state_at(column).cards.gpus)
        free = list(_sizes(room.free_mib, room.free_cores, room.free_slots, cards, column))
        needs = [
            list(
                _sizes(
                    np.broadcast_to(need.mib, shape),
                    np.broadcast_to(need.cores, shape),
                    np.broadcast_to(np.int64(need.slots), shape),
                    cards,
                    column,
                )
            )
            for need in self._needs
        ]
        allowed = [
            sum(1 << row for row, here in enumerate(possible[:, column].tolist()) if here) for possible in self._alone
        ]
        connected = question.topology is not Topology.ANY
        puzzle = Puzzle(
            free,
            [part.cards for part in self._parts],
            needs,
            allowed,
            self.lives,
            question.topology,
            question.fleet.wiring(column) if connected else None,
        )
        return puzzle, self._ranks[:cards, column].tolist()

    @cached_property
    def _ranks(self) -> Ranks:
        """By which the search prefers cards: as the first container sees them."""
        return np.broadcast_to(self.question.rank(self.views[0]), self.views[0].possible.shape)


def _sizes(mib: Ints, cores: Ints, slots: Ints, cards: int, column: int) -> Iterator[Size]:
    return zip(
        mib[:cards, column].tolist(), cores[:cards, column].tolist(), slots[:cards, column].tolist(), strict=True
    )


def _least(need: Ints, possible: Bools) -> Ints:
    """[width] or less: what a card's part costs at least."""
    if need.ndim < 2:
        return need
    least = np.where(possible, need, np.iinfo(np.int64).max).min(axis=0)
    return np.where(possible.any(axis=0), least, 0)


class _Greedy:
    """Container after container, the largest first, each on its best cards."""

    def __init__(self, question: Question, parts: Sequence[Part], needs: Sequence[Need], lives: Sequence[Life]) -> None:
        self.question = question
        shape = question.fleet.has.shape
        self.held = np.zeros((3, *shape), np.int64)
        self.sidecars: dict[int, Ints] = {}
        self.used = {kind: np.zeros(shape, np.bool_) for kind in (True, False)}
        self.fits = np.ones(question.fleet.width, np.bool_)
        views: dict[int, View] = {}
        rows: dict[int, Ints] = {}
        for one in sorted(range(len(parts)), key=lambda one: _largest_first(lives[one], parts[one])):
            room = question.room.less(*self._beside(one, lives[one]))
            possible = question.possible(room, needs[one])
            possible &= ~self.used[not needs[one].is_share]
            views[one] = question.view(parts[one], needs[one], room, possible)
            rows[one] = self._rows(views[one], lives[one])
            self.fits &= _enough(possible, parts[one].cards)
            self._take(one, lives[one], needs[one], rows[one])
        self.views = [views[one] for one in range(len(parts))]
        self.rows = [rows[one] for one in range(len(parts))]

    def _beside(self, one: int, life: Life) -> Ints:
        """What runs at the same time: for an init container the sidecars that start before it."""
        if life is not Life.INIT:
            return self.held
        return np.asarray(sum((held for other, held in self.sidecars.items() if other < one), np.zeros_like(self.held)))

    def _rows(self, view: View, life: Life) -> Ints:
        ranks = np.broadcast_to(self.question.rank(view), view.possible.shape)
        if life is Life.INIT:
            unpaid = ~(self.used[True] | self.used[False])
            return np.lexsort((ranks, unpaid, ~view.possible), axis=0)[: view.count]
        return lowest(masked(view.possible, ranks), view.count)

    def _take(self, one: int, life: Life, need: Need, rows: Ints) -> None:
        np.put_along_axis(self.used[need.is_share], rows, True, axis=0)
        if life is Life.INIT:
            return
        part = np.zeros_like(self.held)
        for measure, cost in enumerate((need.mib, need.cores, np.asarray(need.slots))):
            each = np.take_along_axis(np.broadcast_to(cost, self.used[True].shape), rows, axis=0)
            np.put_along_axis(part[measure], rows, each, axis=0)
        self.held = self.held + part
        if life is Life.SIDECAR:
            self.sidecars[one] = part


def _largest_first(life: Life, part: Part) -> tuple[bool, bool, int, int, int]:
    return life is Life.INIT, not part.whole, -part.memory.amount, -max(part.cores, part.slots), -part.cards
