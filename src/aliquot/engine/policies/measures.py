"""The measures in which a request counts: the memory that it names, the cores that it names, or both."""

from collections.abc import Collection, Iterable

import numpy as np

from aliquot.engine.arrays import ALL, Floats, Ints
from aliquot.engine.block import Block
from aliquot.engine.view import PolicyOutcome, View
from aliquot.engine.workload import WHOLE
from aliquot.model import CORES, Part


def counts_memory(parts: Iterable[Part]) -> bool:
    return any(map(_names_memory, parts)) or not counts_cores(parts)


def counts_cores(parts: Iterable[Part]) -> bool:
    return any(map(_names_cores, parts))


def _names_memory(part: Part) -> bool:
    return part.whole or part.memory.amount > 0


def _names_cores(part: Part) -> bool:
    return part.cores > 0 or part.slots > 0


def left_on_cards(view: View) -> Ints:
    """What is left of each card now, in one number."""
    if not _names_cores(view.part):
        return view.free_mib
    return view.left if _names_memory(view.part) else view.free_cores


def idle_share(
    fleet: Block, free_mib: Ints, free_cores: Ints, parts: Collection[Part], columns: Ints | slice = ALL
) -> Ints:
    """Thousandths of each card in these columns that are idle in every measure. `free_*` have the same columns."""
    shares = []
    if counts_memory(parts):
        shares.append(free_mib * WHOLE // np.maximum(fleet.mib[:, columns], 1))
    if counts_cores(parts) or not shares:
        shares.append(free_cores * (WHOLE // CORES))
    idle = np.minimum(*shares) if len(shares) == 2 else shares[0]
    return np.asarray(idle.clip(0, WHOLE) * fleet.sellable[:, columns])


def left_on_nodes(outcome: PolicyOutcome) -> Floats:
    """The share of each node's sellable cards that is left after the pod is placed; memory and cores add up."""
    parts = [container.part for container in outcome.request.containers]
    if not counts_cores(parts):
        return _memory_left(outcome)
    if not counts_memory(parts):
        return _cores_left(outcome)
    left = _memory_left(outcome)
    left += _cores_left(outcome)
    return left


def _memory_left(outcome: PolicyOutcome) -> Floats:
    return (outcome.fleet.node_free_mib - outcome.taken_mib) * outcome.fleet.per_node_mib


def _cores_left(outcome: PolicyOutcome) -> Floats:
    return (outcome.fleet.node_free_cores - outcome.taken_cores) * outcome.fleet.per_node_cores
