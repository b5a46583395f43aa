"""Places container after container, each on its best cards, on all nodes at once."""

from collections.abc import Sequence

import numpy as np

from aliquot.engine.all_nodes.question import Question
from aliquot.engine.all_nodes.room import Need
from aliquot.engine.arrays import Bools, Ints, Ranks, enough, lowest, masked
from aliquot.engine.view import View
from aliquot.model import Life, Part


class Greedy:
    """`views` and `rows` are per container; `fits` are the columns where every container found cards. The largest
    container comes first, or with `in_order` the first container of the pod."""

    def __init__(
        self,
        question: Question,
        parts: Sequence[Part],
        needs: Sequence[Need],
        lives: Sequence[Life],
        *,
        in_order: bool = False,
    ) -> None:
        self.question = question
        shape = question.fleet.has.shape
        self._held = np.zeros((3, *shape), np.int64)
        self._sidecars: dict[int, Ints] = {}
        self._by_share, self._by_slots = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        """Cards that the pod uses, by the mode in which it shares them."""
        self.fits = np.ones(question.fleet.width, np.bool_)
        views: dict[int, View] = {}
        rows: dict[int, Ints] = {}
        containers = range(len(parts))
        for place in containers if in_order else sorted(containers, key=lambda c: _largest_first(lives[c], parts[c])):
            room = question.room.less(*self._beside(place, lives[place]))
            possible = question.possible(room, needs[place])
            possible &= ~(self._by_slots if needs[place].is_share else self._by_share)
            views[place] = question.view(parts[place], needs[place], room, possible)
            rows[place], fits = self._choose(views[place], lives[place])
            self.fits &= fits
            self._take(place, lives[place], needs[place], rows[place])
        self.views = [views[place] for place in range(len(parts))]
        self.rows = [rows[place] for place in range(len(parts))]

    def _beside(self, place: int, life: Life) -> Ints:
        """What runs at the same time. For an init container these are the sidecars that start before it."""
        if life is not Life.INIT:
            return self._held
        earlier = (held for other, held in self._sidecars.items() if other < place)
        return np.asarray(sum(earlier, np.zeros_like(self._held)))

    def _choose(self, view: View, life: Life) -> tuple[Ints, Bools]:
        fits, keys = enough(view.possible, view.count), self._keys(view, life)
        if self.question.is_connected(view.part):
            return self.question.connected(view, keys, fits)
        return lowest(masked(view.possible, keys), view.count), fits

    def _keys(self, view: View, life: Life) -> Ranks:
        ranks = np.broadcast_to(self.question.rank(view), view.possible.shape)
        if life is not Life.INIT:
            return ranks
        # init containers prefer cards that the pod pays for anyway
        unpaid = ~(self._by_share | self._by_slots)
        return np.lexsort((ranks, unpaid, ~view.possible), axis=0).argsort(axis=0)

    def _take(self, place: int, life: Life, need: Need, rows: Ints) -> None:
        np.put_along_axis(self._by_share if need.is_share else self._by_slots, rows, True, axis=0)
        if life is Life.INIT:
            return
        part = np.zeros_like(self._held)
        for measure, cost in enumerate((need.mib, need.cores, np.asarray(need.slots))):
            each = np.take_along_axis(np.broadcast_to(cost, self._by_share.shape), rows, axis=0)
            np.put_along_axis(part[measure], rows, each, axis=0)
        self._held = self._held + part
        if life is Life.SIDECAR:
            self._sidecars[place] = part


def _largest_first(life: Life, part: Part) -> tuple[bool, bool, int, int, int]:
    return life is Life.INIT, not part.whole, -part.memory.amount, -max(part.cores, part.slots), -part.cards
