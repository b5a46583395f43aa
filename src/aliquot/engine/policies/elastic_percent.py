"""The raters of elastic-gpu's scheduler 0.3, which only knew percent of a card: the largest demand first, on the
fullest or the emptiest card. Its greedy choice misses placements that exist; our complete search finds them."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from aliquot.engine.arrays import Floats, Ints, Ranks
from aliquot.engine.policies.node_fill import NodeFill
from aliquot.engine.state import NodeState
from aliquot.engine.view import NodePolicy, PodPolicy, PolicyOutcome, View
from aliquot.model import CORES, Gpu, Part, Request, Unit


class _PercentCards(PodPolicy):
    _spread: ClassVar[bool]

    def rank(self, view: View) -> Ranks:
        """For pods that `arrange` declines."""
        free = _percent_free(view.free_mib, view.free_cores, view.fleet.mib)
        return -free if self._spread else free

    def arrange(self, state: NodeState, request: Request) -> dict[str, tuple[Gpu, ...]] | None:
        if request.together or not all(_is_percent(container.part) for container in request.containers):
            return None
        fill = NodeFill(state, request)
        demands = [CORES if container.part.whole else container.part.cores for container in request.containers]
        indexes = choose([_percent_left(fill, gpu) for gpu in fill.cards], demands, spread=self._spread)
        if indexes is None:
            return None
        return {c.name: (fill.cards[place],) for c, place in zip(request.containers, indexes, strict=True)}


def _is_percent(part: Part) -> bool:
    """Whether the part is a positive percentage of one card, the same in cores and memory."""
    if part.cards != 1:
        return False
    return part.whole or (part.memory.unit is Unit.PERCENT and part.memory.amount == part.cores > 0)


def _percent_left(fill: NodeFill, gpu: Gpu) -> int:
    left = fill.left(gpu)
    return min(left.cores, CORES * left.mib // gpu.mib) if gpu.mib else left.cores


def _percent_free(free_mib: Ints, free_cores: Ints, mib: Ints) -> Ints:
    """The percentage that is free. If the memory of a card is unknown, only its cores count."""
    return np.where(mib, np.minimum(free_cores, CORES * free_mib // np.maximum(mib, 1)), free_cores)


def choose(free: Sequence[int], demands: Sequence[int], *, spread: bool) -> list[int] | None:
    """A card for each demand, -1 for a demand of 0; None if the greedy choice finds no placement.

    Before each choice the original sorts the same list of cards again, so cards that have become equal keep the order
    of the previous sort, not that of their index.
    """
    left, chosen = list(free), [-1] * len(demands)
    cards = list(range(len(free)))
    for place in ascending(demands)[::-1]:
        if not demands[place]:
            continue
        cards.sort(key=left.__getitem__)
        fitting = [card for card in cards if left[card] >= demands[place]]
        if not fitting:
            return None
        chosen[place] = fitting[-1 if spread else 0]
        left[chosen[place]] -= demands[place]
    return chosen


def ascending(numbers: Sequence[int]) -> list[int]:
    """Their places, smallest first. Equal numbers keep their order."""
    return sorted(range(len(numbers)), key=numbers.__getitem__)


class PercentBinpackCards(_PercentCards):
    name = "elastic-0.3-binpack"
    _spread = False


class PercentSpreadCards(_PercentCards):
    name = "elastic-0.3-spread"
    _spread = True


class PercentBinpackNodes(NodePolicy):
    name = "elastic-0.3-binpack"
    leaves_ties = True

    def score(self, outcome: PolicyOutcome) -> Floats:
        """By what is free before the pod is placed. 29 of 100 count as 28, as in the original's floating-point
        arithmetic."""
        free, cards = _node_percents(outcome)
        used = CORES * cards - free.sum(axis=0)
        return np.asarray(np.trunc(used / np.maximum(CORES * cards, 1) * 100) - cards, np.float64)


class PercentSpreadNodes(NodePolicy):
    name = "elastic-0.3-spread"
    leaves_ties = True

    def score(self, outcome: PolicyOutcome) -> Floats:
        """By what is free before the pod is placed: untouched cards count most."""
        free, cards = _node_percents(outcome)
        untouched = (free == CORES).sum(axis=0)
        return np.asarray(100 * untouched + free.sum(axis=0) // 10 - cards, np.float64)


def _node_percents(outcome: PolicyOutcome) -> tuple[Ints, Ints]:
    fleet = outcome.fleet
    free = _percent_free(outcome.before_mib, outcome.before_cores, fleet.mib)
    return np.where(fleet.has, free, 0), fleet.has.sum(axis=0)
