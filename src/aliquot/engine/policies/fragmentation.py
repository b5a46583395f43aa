"""Keeps the remainder usable (FGD, USENIX ATC'23): a pod goes where it makes the least idle GPU useless for future
pods.

An idle share of a card is a fragment for a shape of pod if the card has too little left for it, or if the node cannot
run that shape at all. The measure sums this over the expected workload; a pod goes where the sum grows least.
"""

from collections.abc import Callable, Sequence

import numpy as np

from aliquot.engine.arrays import Bools, Floats, Ints, Ranks
from aliquot.engine.block import Block
from aliquot.engine.policies.measures import counts_cores, counts_memory
from aliquot.engine.view import GpuPolicy, NodePolicy, PolicyOutcome, View
from aliquot.engine.workload import COMMON, WHOLE, Workload
from aliquot.model import CORES, Part, is_model


class LeastFragmentingCards(GpuPolicy):
    name = "fragmentation"

    def rank(self, view: View) -> Ranks:
        """Each card as if only one card's part went there."""
        fleet, workload = view.fleet, view.settings.workload or COMMON
        idle = _idle(fleet, view.free_mib, view.free_cores, (view.part,))
        left = _idle(fleet, view.free_mib - view.need_mib, view.free_cores - view.need_cores, (view.part,))
        usable = _usable_alone(fleet, workload)
        grown = usable(idle) - usable(left) - workload.weight * (idle - left)
        for share, models, sizes in _several(workload):
            before, after = _taking(fleet, idle, share, models), _taking(fleet, left, share, models)
            total, count = (before * idle).sum(axis=0), before.sum(axis=0)
            total_after = total + (after * left - before * idle)
            count_after = count + after - before
            for cards, weight in sizes:
                grown += weight * ((count >= cards) * total - (count_after >= cards) * total_after)
        return -_rounded(grown, workload)


class LeastFragmentingNodes(NodePolicy):
    name = "fragmentation"

    def score(self, outcome: PolicyOutcome) -> Floats:
        fleet, parts = outcome.fleet, tuple(container.part for container in outcome.request.containers)
        workload = outcome.settings.workload or COMMON
        before = fragments(fleet, _idle(fleet, outcome.before_mib, outcome.before_cores, parts), workload)
        after = fragments(fleet, _idle(fleet, outcome.after_mib, outcome.after_cores, parts), workload)
        return _rounded(after - before, workload).astype(np.float64)


def fragments(fleet: Block, idle: Ints, workload: Workload) -> Ints:
    """The measure of each node, [width]: thousandths of cards, times the workload's weight, so that it is exact."""
    measure = (workload.weight * idle - _usable_alone(fleet, workload)(idle)).sum(axis=0)
    for share, models, sizes in _several(workload):
        taking = _taking(fleet, idle, share, models)
        total, count = (taking * idle).sum(axis=0), taking.sum(axis=0)
        for cards, weight in sizes:
            measure -= weight * ((count >= cards) * total)
    return np.asarray(measure, np.int64)


def _usable_alone(fleet: Block, workload: Workload) -> Callable[[Ints], Ints]:
    """How much of an idle share all single-card shapes can use, weighted. It depends only on the card itself, so it is
    looked up in a table."""
    models = [*fleet.models, ""]  # where there is no card, nothing is idle
    table = np.zeros((len(models), WHOLE + 1), np.int64)
    for shape in workload.shapes:
        if shape.cards == 1:
            table[_suits(models, shape.models), shape.share :] += shape.weight
    table *= np.arange(WHOLE + 1)
    if (table == table[0]).all():
        return lambda idle: table[0].take(idle)
    places = fleet.model_id % len(models) * (WHOLE + 1)
    return lambda idle: table.take(places + idle)


def _several(workload: Workload) -> list[tuple[int, tuple[str, ...], list[tuple[int, int]]]]:
    """The shapes with several cards as (share, models, [(cards, weight)]). Whether a node can run them depends on all
    of its cards."""
    sizes: dict[tuple[int, tuple[str, ...]], list[tuple[int, int]]] = {}
    for shape in workload.shapes:
        if shape.cards > 1:
            sizes.setdefault((shape.share, shape.models), []).append((shape.cards, shape.weight))
    return [(share, models, counts) for (share, models), counts in sizes.items()]


def _taking(fleet: Block, idle: Ints, share: int, models: tuple[str, ...]) -> Bools:
    """Cards of these models that have at least this much idle."""
    enough = idle >= share
    return enough & _suits([*fleet.models, ""], models)[fleet.model_id] if models else enough


def _suits(models: Sequence[str], wanted: tuple[str, ...]) -> Bools:
    return np.array([not wanted or any(is_model(name, model) for name in wanted) for model in models], np.bool_)


def _idle(fleet: Block, free_mib: Ints, free_cores: Ints, parts: tuple[Part, ...]) -> Ints:
    """Thousandths of each card that are idle in every measure."""
    shares = []
    if counts_memory(parts):
        shares.append(free_mib * WHOLE // np.maximum(fleet.mib, 1))
    if counts_cores(parts) or not shares:
        shares.append(free_cores * (WHOLE // CORES))
    idle = np.minimum(*shares) if len(shares) == 2 else shares[0]
    return idle.clip(0, WHOLE) * fleet.sellable


def _rounded(grown: Ints, workload: Workload) -> Ints:
    """From 0 to 100, 50 if nothing changes, rounded as its authors round: within a point the first fit wins."""
    cards = grown / (workload.weight * WHOLE)
    return np.floor(100.0 / (1.0 + np.exp(np.clip(cards, -700.0, 700.0)))).astype(np.int64)
