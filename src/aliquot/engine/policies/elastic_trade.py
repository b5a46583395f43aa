"""The raters of elastic-gpu's current scheduler: it tries every way to place a pod's containers and rates the whole
node. The last of equal ways wins."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from aliquot.engine.arrays import Bools, Floats, Ints, Ranks
from aliquot.engine.policies.node_fill import NodeFill
from aliquot.engine.state import NodeState
from aliquot.engine.view import NodePolicy, PodPolicy, PolicyOutcome, View
from aliquot.model import Charge, ContainerRequest, Gpu, Part, Request

MAX_WAYS = 1 << 16
"""Beyond this many ways, a pod is left to our own search. The original has no limit and just takes longer."""


class _TradeCards(PodPolicy):
    @staticmethod
    @abstractmethod
    def rate(span: Ints, rated: Ints) -> Ints:
        """Rates each way. `span` is how far the cards are apart in memory and cores, `rated` the number of cards that
        hold a container with one card."""

    def rank(self, view: View) -> Ranks:
        """For one container, and for pods that `arrange` declines. Among equal ways the highest card wins; whole cards
        are the first free ones."""
        rows = np.arange(view.fleet.rows)[:, np.newaxis]
        if view.part.whole:
            return rows
        has = view.fleet.has
        span = _span_after(view.free_mib, view.need_mib, has) + _span_after(view.free_cores, view.need_cores, has)
        return -(self.rate(span, np.ones_like(span)) * view.fleet.rows + rows)

    def is_rank_enough(self, request: Request) -> bool:
        return len(request.containers) == 1 and (
            request.containers[0].part.whole or request.containers[0].part.cards == 1
        )

    def arrange(self, state: NodeState, request: Request) -> dict[str, tuple[Gpu, ...]] | None:
        if request.together or any(c.part.cards > 1 and not c.part.whole for c in request.containers):
            return None
        if _most_ways(len(state.cards.gpus), request) > MAX_WAYS:
            return None
        ways = _Ways(state, request)
        for container in request.containers:
            ways.put(container)
        if not ways.count:
            return None
        scores = self.rate(ways.span, ways.rated)
        return ways.cards(int(np.flatnonzero(scores == scores.max())[-1]))

    def steps(self, cards: int, request: Request) -> int:
        return 500 + _most_ways(cards, request)


def _most_ways(cards: int, request: Request) -> int:
    """Whole cards are not tried in several ways: the original takes the first free ones."""
    return int(max(1, cards) ** sum(not c.part.whole for c in request.containers))


class _Ways:
    """Every way to place the containers so far: in the order of the containers, and of the cards by index. Arrays are
    [..., cards, ways]."""

    def __init__(self, state: NodeState, request: Request) -> None:
        self._fill, self._gpus, self._unit_mib = NodeFill(state, request), state.cards.gpus, state.cards.unit_mib
        left = [self._fill.left(gpu) for gpu in self._gpus]
        self._left = _sizes(left)[:, :, np.newaxis]
        self._by_share, self._by_slots, self._rated = np.zeros((3, len(left), 1), np.bool_)
        self._chosen: dict[str, Ints] = {}

    @property
    def count(self) -> int:
        return int(self._left.shape[2])

    @property
    def span(self) -> Ints:
        mib, cores, _ = self._left
        return np.asarray(mib.max(axis=0) - mib.min(axis=0) + cores.max(axis=0) - cores.min(axis=0))

    @property
    def rated(self) -> Ints:
        return np.asarray(self._rated.sum(axis=0))

    def cards(self, way: int) -> dict[str, tuple[Gpu, ...]]:
        return {name: tuple(self._gpus[row] for row in rows[:, way].tolist()) for name, rows in self._chosen.items()}

    def put(self, container: ContainerRequest) -> None:
        part = container.part
        costs = _sizes([part.on(gpu, self._unit_mib) for gpu in self._gpus])
        takes = (self._left >= np.maximum(costs, _LEAST)[:, :, np.newaxis]).all(axis=0)
        takes &= self._alone(part)[:, np.newaxis]
        takes &= ~(self._by_share if part.slots else self._by_slots)
        ways, rows = self._choices(takes, part)
        self._left, self._rated = self._left[:, :, ways], self._rated[:, ways]
        self._by_share, self._by_slots = self._by_share[:, ways], self._by_slots[:, ways]
        self._chosen = {name: chosen[:, ways] for name, chosen in self._chosen.items()} | {container.name: rows}
        here = rows, np.arange(len(ways))
        self._left[:, *here] -= costs[:, rows]
        (self._by_slots if part.slots else self._by_share)[here] = True
        if part.cards == 1:
            self._rated[here] = True

    def _alone(self, part: Part) -> Bools:
        """Cards that can take the part if the pod's other containers are ignored."""
        return np.array([gpu in self._fill.cards and self._fill.takes(gpu, part) for gpu in self._gpus], np.bool_)

    def _choices(self, takes: Bools, part: Part) -> tuple[Ints, Ints]:
        """The ways that continue, and the rows that each takes."""
        if not part.whole:
            ways, rows = takes.T.nonzero()
            return ways, rows[np.newaxis]
        (ways,) = (takes.sum(axis=0) >= part.cards).nonzero()
        return ways, np.argsort(~takes[:, ways], axis=0, kind="stable")[: part.cards]


_LEAST = np.array([[0], [1], [0]])
"""A card whose cores are sold out takes no more parts."""


def _sizes(charges: Sequence[Charge]) -> Ints:
    """[MiB, cores, slots] x cards"""
    return np.array([(charge.mib, charge.cores, charge.slots) for charge in charges], np.int64).reshape(-1, 3).T


class TradeBinpackCards(_TradeCards):
    name = "elastic-binpack"

    @staticmethod
    def rate(span: Ints, rated: Ints) -> Ints:
        return span // 2 // (rated + 1) * 100


class TradeSpreadCards(_TradeCards):
    """The original never implemented it: every way rates 0, so the last one wins."""

    name = "elastic-spread"

    @staticmethod
    def rate(span: Ints, rated: Ints) -> Ints:  # noqa: ARG004
        return np.zeros_like(span)


class TradeBinpackNodes(NodePolicy):
    name = "elastic-binpack"
    leaves_ties = True

    def score(self, outcome: PolicyOutcome) -> Floats:
        rated = np.zeros(outcome.fleet.has.shape, np.bool_)
        for view, rows in outcome.views:
            if view.count == 1:
                np.put_along_axis(rated, rows, True, axis=0)
        span = _span(outcome.after_mib, outcome.fleet.has) + _span(outcome.after_cores, outcome.fleet.has)
        return TradeBinpackCards.rate(span, rated.sum(axis=0)).astype(np.float64)


_ENDLESS = np.iinfo(np.int64).max


def _span_after(left: Ints, need: Ints, has: Bools) -> Ints:
    """[rows, width]: how far the cards of a node are apart if the card in each row gives `need`."""
    after = left - need
    low, high = np.where(has, left, _ENDLESS), np.where(has, left, -1)
    if len(left) == 1:
        return np.zeros_like(after)
    least, second_least = np.partition(low, 1, axis=0)[:2]
    second_most, most = np.partition(high, -2, axis=0)[-2:]
    of_others = np.where(low == least, second_least, least), np.where(high == most, second_most, most)
    return np.asarray(np.maximum(after, of_others[1]) - np.minimum(after, of_others[0]))


def _span(left: Ints, has: Bools) -> Ints:
    most = np.where(has, left, 0).max(axis=0, initial=0)
    least = np.where(has, left, _ENDLESS).min(axis=0, initial=_ENDLESS)
    return np.where(has.any(axis=0), most - least, 0)


class TradeSpreadNodes(NodePolicy):
    name = "elastic-spread"
    leaves_ties = True

    def score(self, outcome: PolicyOutcome) -> Floats:
        return np.zeros(outcome.fleet.width)
