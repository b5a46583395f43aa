"""How much searching one decision may cost.

It is counted in steps, each worth about a microsecond of one core, and not timed: a question that is asked again with
the same effort gets the same answer, on any machine.
"""

from collections.abc import Callable
from sys import maxsize
from typing import TypeVar

Answer = TypeVar("Answer")

FULL = 1_000_000
"""Steps of a decision that is given no other effort: about a second."""


class Effort:
    """Everything that one decision searches, on whichever nodes, takes its steps from here."""

    def __init__(self, steps: int = FULL) -> None:
        self.steps = steps
        self.left = steps
        self.remembered = 0
        """Steps of searches whose results were known: they count, but took no time."""
        self.ran_out = False
        """Something was not searched, or not to its end."""

    @property
    def spent(self) -> int:
        return self.steps - self.left

    @property
    def worked(self) -> int:
        return self.spent - self.remembered

    def take(self, steps: int) -> bool:
        """Take steps before the work that they stand for. False if too few are left: then none are left afterwards."""
        if steps > self.left:
            self.left = 0
            self.ran_out = True
            return False
        self.left -= steps
        return True

    def half(self) -> "Effort":
        """A part for work of which something must be left over. `settle` it afterwards."""
        return Effort(self.left // 2)

    def settle(self, part: "Effort") -> None:
        self.left -= part.spent


def within(budget: Effort, question: Callable[[Effort], Answer], effort: Effort) -> Answer:
    """Ask with the lesser of two efforts, of several questions together and of this one, and take what it cost from
    both. Only the lesser one has run out if that was not enough."""
    part = Effort(min(budget.left, effort.left))
    answer = question(part)
    for each in (budget, effort):
        each.settle(part)
        each.remembered += part.remembered
        each.ran_out |= part.ran_out and not each.left
    return answer


def endless() -> Effort:
    """For one search on one node, which has bounds of its own."""
    return Effort(maxsize)
