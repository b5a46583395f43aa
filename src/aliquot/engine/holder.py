"""Who holds what on a node, for preemption and explanations."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aliquot.engine.state import NodeState
from aliquot.model import Charge


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod and what it takes of each card of one node, by uuid. `pod` is `namespace/name`."""

    uid: str
    pod: str
    priority: int
    charges: Mapping[str, Charge]


def without(state: NodeState, holders: Iterable[Holder]) -> NodeState:
    """The node after these pods have ended. An oversold card stays as full as the other pods make it."""
    for holder in holders:
        state = state.minus(holder.charges)
    return state


def freed(holders: Iterable[Holder]) -> tuple[int, int]:
    """The memory and cores that pods give back, for comparing sets of pods: less is better."""
    charges = [charge for holder in holders for charge in holder.charges.values()]
    return sum(charge.mib for charge in charges), sum(charge.cores for charge in charges)


def largest_gone(state: NodeState, holders: Sequence[Holder], count: int) -> NodeState:
    """The node at least as free as any `count` of the pods could leave it: without the largest charges of each card in
    each measure."""
    gone = {}
    for gpu in state.cards.gpus:
        held = [holder.charges[gpu.uuid] for holder in holders if gpu.uuid in holder.charges]
        if held:
            gone[gpu.uuid] = largest(held, count)
    return state.minus(gone)


def largest(charges: Sequence[Charge], count: int) -> Charge:
    """The most that `count` of the charges take, measure by measure."""
    return Charge(*(sum(sorted(sizes, reverse=True)[:count]) for sizes in zip(*charges, strict=True)))
