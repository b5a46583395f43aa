"""How much searching one decision may cost.

Effort is counted in steps of about a microsecond of one core, and not timed: the same question with the same effort
gets the same answer on any machine.
"""

from collections.abc import Callable, Sequence
from sys import maxsize
from typing import TypeVar

_T = TypeVar("_T")

FULL_EFFORT = 1_000_000
"""Steps of a decision without an explicit effort: about a second."""
_LEAST_SHARE = 10_000
"""Steps for one of many nodes. Less is not worth beginning."""


class Effort:
    """The budget of one decision. All of its searches, on all nodes, take their steps from here."""

    def __init__(self, steps: int = FULL_EFFORT) -> None:
        self.steps = steps
        self.left = steps
        self.remembered = 0
        """Steps of searches whose results were cached. They count, but took no time."""
        self.ran_out = False
        """Whether something was not searched, or not to its end."""

    @property
    def spent(self) -> int:
        return self.steps - self.left

    @property
    def worked(self) -> int:
        return self.spent - self.remembered

    def take(self, steps: int) -> bool:
        """Takes steps before the work that they stand for. Returns False if too few are left; then none are left
        afterwards."""
        if steps > self.left:
            self.left = 0
            self.ran_out = True
            return False
        self.left -= steps
        return True

    def half(self) -> "Effort":
        """An effort with half of the steps, for work after which steps must be left. `settle` it afterwards."""
        return Effort(self.left // 2)

    def settle(self, part: "Effort") -> None:
        self.left -= part.spent


def within(budget: Effort, question: Callable[[Effort], _T], effort: Effort) -> _T:
    """Ask with the lesser of two efforts: that of several questions together, and that of this one. Take the cost from
    both. If it was not enough, only the lesser effort has run out."""
    part = Effort(min(budget.left, effort.left))
    answer = question(part)
    for each in (budget, effort):
        each.settle(part)
        each.remembered += part.remembered
        each.ran_out |= part.ran_out and not each.left
    return answer


def endless() -> Effort:
    """For one search on one node. The search has its own bounds."""
    return Effort(maxsize)


def on_each(nodes: Sequence[str], attempt: Callable[[str, Effort], _T | None], effort: Effort) -> dict[str, _T]:
    """What is found on each of many nodes with the effort of one decision. Leaves out nodes for which the effort does
    not last.

    First each node gets an equal share of half of the effort, so that one hard node does not take it all. Then the
    nodes for which that was too little share the rest, one after another.
    """
    found: dict[str, _T] = {}
    too_hard = list(nodes)
    if len(nodes) > 1:
        shared = effort.half()
        too_hard = _on_shares(nodes, attempt, shared, found)
        effort.settle(shared)
    for node in too_hard:
        if (answer := attempt(node, effort)) is not None:
            found[node] = answer
    return found


def _on_shares(
    nodes: Sequence[str], attempt: Callable[[str, Effort], _T | None], effort: Effort, found: dict[str, _T]
) -> list[str]:
    """Returns the nodes for which their share was too little."""
    too_hard = []
    for place, node in enumerate(nodes):
        even = effort.left // (len(nodes) - place)
        share = Effort(min(effort.left, max(even, _LEAST_SHARE)))
        if (answer := attempt(node, share)) is not None:
            found[node] = answer
        elif share.ran_out:
            too_hard.append(node)
        effort.settle(share)
    return too_hard
