"""Who holds what on a node, as far as preemption and explanations care."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aliquot.engine.state import NodeState
from aliquot.model import Charge


@dataclass(frozen=True)
class Holder:
    """A pod and what it takes of each card of one node, by uuid. `pod` is `namespace/name`."""

    uid: str
    pod: str
    priority: int
    charges: Mapping[str, Charge]


def without(state: NodeState, holders: Iterable[Holder]) -> NodeState:
    """The node when these pods have ended. A card that was sold twice stays as full as the others make it."""
    for holder in holders:
        state = state.minus(holder.charges)
    return state


def freed(holders: Iterable[Holder]) -> tuple[int, int]:
    """How much memory and cores pods give back, to compare sets of them: less is better."""
    charges = [charge for holder in holders for charge in holder.charges.values()]
    return sum(charge.mib for charge in charges), sum(charge.cores for charge in charges)


def largest_gone(state: NodeState, holders: Sequence[Holder], count: int) -> NodeState:
    """The node, better than any `count` of the pods could leave it: on each card and in each measure without the
    largest."""
    gone = {}
    for gpu in state.cards.gpus:
        held = [holder.charges[gpu.uuid] for holder in holders if gpu.uuid in holder.charges]
        if held:
            gone[gpu.uuid] = largest(held, count)
    return state.minus(gone)


def largest(charges: Sequence[Charge], count: int) -> Charge:
    """The most that `count` of the charges take, measure by measure."""

    def most(sizes: Iterable[int]) -> int:
        return sum(sorted(sizes, reverse=True)[:count])

    return Charge(
        most(charge.cores for charge in charges),
        most(charge.mib for charge in charges),
        most(charge.slots for charge in charges),
        most(charge.shares for charge in charges),
    )
