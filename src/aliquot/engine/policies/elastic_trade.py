"""The raters of elastic-gpu's present scheduler: every way to put a pod's containers is tried and the whole node rated;
the last of equal ways wins."""

from abc import abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from aliquot.engine.policies.trial import Trial
from aliquot.engine.state import NodeState
from aliquot.engine.view import Bools, Floats, GpuPolicy, Ints, NodePolicy, Outcome, Ranks, Settings, View
from aliquot.model import ContainerRequest, Gpu, Part, Request

MOST_WAYS = 1 << 16
"""Beyond so many ways a pod is left to our own search: the original has no limit and takes its time."""


class _TradeCards(GpuPolicy):
    @abstractmethod
    def rate(self, span: int, rated: int) -> int:
        """`span`: how far the cards are apart in memory and cores; `rated`: cards that hold a container of one card."""

    def rank(self, view: View) -> Ranks:
        """For pods that `arrange` leaves alone: among equal ways the highest card wins."""
        return -np.arange(view.fleet.rows)[:, np.newaxis]

    def arrange(  # the originals heed no settings
        self,
        state: NodeState,
        request: Request,
        settings: Settings,  # noqa: ARG002
    ) -> dict[str, tuple[Gpu, ...]] | None:
        if request.together or any(c.part.cards > 1 and not c.part.whole for c in request.containers):
            return None
        if len(state.cards.gpus) ** sum(not c.part.whole for c in request.containers) > MOST_WAYS:
            return None
        ways = _Ways(state, request, self.rate)
        ways.walk(request.containers)
        return ways.best


class _Ways:
    """Depth first over the containers in order and the cards by index."""

    def __init__(self, state: NodeState, request: Request, rate: Callable[[int, int], int]) -> None:
        self._trial = Trial(state, request)
        self._gpus = state.cards.gpus
        self._rate = rate
        self._chosen: dict[str, tuple[Gpu, ...]] = {}
        self._best_score = 0
        self.best: dict[str, tuple[Gpu, ...]] | None = None

    def walk(self, containers: Sequence[ContainerRequest]) -> None:
        if not containers:
            self._judge()
            return
        (container, *later), trial = containers, self._trial
        for gpus in self._choices(container.part):
            trial.put(gpus, container.part)
            self._chosen[container.name] = gpus
            self.walk(later)
            trial.take_back(gpus, container.part)

    def _choices(self, part: Part) -> list[tuple[Gpu, ...]]:
        """Whole cards are not tried in several ways: the first free ones are taken."""
        taking = [gpu for gpu in self._trial.cards if self._trial.takes(gpu, part)]
        if not part.whole:
            return [(gpu,) for gpu in taking]
        return [tuple(taking[: part.cards])] if len(taking) >= part.cards else []

    def _judge(self) -> None:
        left = [self._trial.left(gpu) for gpu in self._gpus]
        mib, cores = [charge.mib for charge in left], [charge.cores for charge in left]
        rated = {gpus[0] for gpus in self._chosen.values() if len(gpus) == 1}
        score = self._rate(max(mib) + max(cores) - min(mib) - min(cores), len(rated))
        if score >= self._best_score:
            self._best_score, self.best = score, dict(self._chosen)


class TradeBinpackCards(_TradeCards):
    name = "elastic-binpack"

    def rate(self, span: int, rated: int) -> int:
        return span // 2 // (rated + 1) * 100


class TradeSpreadCards(_TradeCards):
    """It was never written: every way is worth nothing, so the last one wins."""

    name = "elastic-spread"

    def rate(self, span: int, rated: int) -> int:  # noqa: ARG002
        return 0


class TradeBinpackNodes(NodePolicy):
    name = "elastic-binpack"

    def score(self, outcome: Outcome) -> Floats:
        rated = np.zeros(outcome.fleet.has.shape, np.bool_)
        for view, rows in outcome.views:
            if view.count == 1:
                np.put_along_axis(rated, rows, True, axis=0)
        span = _span(outcome.after_mib, outcome.fleet.has) + _span(outcome.after_cores, outcome.fleet.has)
        return np.asarray(span // 2 // (rated.sum(axis=0) + 1) * 100, np.float64)


def _span(left: Ints, has: Bools) -> Ints:
    most = np.where(has, left, 0).max(axis=0, initial=0)
    least = np.where(has, left, np.iinfo(np.int64).max).min(axis=0, initial=np.iinfo(np.int64).max)
    return np.where(has.any(axis=0), most - least, 0)


class TradeSpreadNodes(NodePolicy):
    name = "elastic-spread"

    def score(self, outcome: Outcome) -> Floats:
        return np.zeros(outcome.fleet.width)
