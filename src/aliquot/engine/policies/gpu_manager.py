"""gpu-manager's choice on a node: a tree of how cards are connected over PCIe, and three ways to walk it.

A part of a card goes to the fullest card with room (share). One whole card comes from the fullest branch that has one
(fragment). Several come from the closest branch that has enough (link). NVLinks do not count. Among equal branches, the
one with the lowest card wins.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from aliquot.engine.arrays import Ranks
from aliquot.engine.one_node.in_order import BLOCK_MIB, ascending
from aliquot.engine.policies.node_fill import NodeFill
from aliquot.engine.state import NodeState
from aliquot.engine.topology import Wiring, wiring_of
from aliquot.engine.view import PodPolicy, View
from aliquot.model import Gpu, Part, Request
from aliquot.model.links import Pcie, pcie


class TreeCards(PodPolicy):
    name = "gpu-manager"

    def rank(self, view: View) -> Ranks:
        """The share order, for nodes and pods that `arrange` declines."""
        return ascending(view.free_cores, view.free_mib)

    def arrange(self, state: NodeState, request: Request) -> dict[str, tuple[Gpu, ...]] | None:
        if request.together:
            return None
        fill, root, chosen = NodeFill(state, request), tree(wiring_of(state.cards.gpus)), {}
        for container in request.containers:
            gpus = _choose(fill, root, state.cards.gpus, container.part)
            if not gpus:
                return None
            fill.put(gpus, container.part)
            chosen[container.name] = gpus
        return chosen


def _choose(fill: NodeFill, root: "Branch", gpus: Sequence[Gpu], part: Part) -> tuple[Gpu, ...]:
    """Empty if there are none."""
    if not part.whole:
        return next(((gpu,) for gpu in share_order(fill) if fill.takes(gpu, part)), ()) if part.cards == 1 else ()
    free = {row for row, gpu in enumerate(gpus) if gpu in fill.cards and fill.takes(gpu, part)}
    rows = fragment(root, free) if part.cards == 1 else link(root, free, part.cards)
    return tuple(gpus[row] for row in rows)


def share_order(fill: NodeFill) -> list[Gpu]:
    """Fewest free cores, least free memory in blocks, fewest neighbours, lowest index."""
    return sorted(
        fill.cards,
        key=lambda gpu: (
            fill.left(gpu).cores,
            fill.left(gpu).mib // BLOCK_MIB,
            fill.parts_on(gpu),
            gpu.index,
        ),
    )


@dataclass
class Branch:
    """Cards (rows) that are joined at this closeness or a closer one. The root has the least closeness."""

    closeness: int
    rows: frozenset[int]
    branches: list["Branch"] = field(default_factory=list)

    def available(self, free: set[int]) -> int:
        return len(self.rows & free)

    def walk(self) -> Iterator["Branch"]:
        yield self
        for branch in self.branches:
            yield from branch.walk()


@lru_cache(256)
def tree(wiring: Wiring) -> Branch:
    """Levels from the root down. A level that joins nothing new is left out."""
    root = Branch(-1, frozenset(range(len(wiring.scores))))
    for level in sorted(set(Pcie) - {Pcie.UNKNOWN, Pcie.SAME_BOARD}):
        for rows in _joined(wiring, level):
            parent = min((branch for branch in root.walk() if rows <= branch.rows), key=lambda branch: len(branch.rows))
            if any(_closeness(wiring, row, other) == level for row in rows for other in rows if row < other):
                parent.branches.append(Branch(level, rows))
    return root


def _joined(wiring: Wiring, level: int) -> Iterator[frozenset[int]]:
    """Groups of at least two cards that reach each other at this closeness or a closer one."""
    rest = set(range(len(wiring.scores)))
    while rest:
        group = frontier = {min(rest)}
        while frontier:
            frontier = {row for row in rest - group if any(_closeness(wiring, row, near) >= level for near in frontier)}
            group = group | frontier
        rest -= group
        if len(group) > 1:
            yield frozenset(group)


def _closeness(wiring: Wiring, row: int, other: int) -> Pcie:
    return min(pcie(wiring.scores[row][other]), Pcie.ONE_SWITCH)  # two cards of one board share its switch


def fragment(root: Branch, free: set[int], count: int = 1) -> list[int]:
    """Descends into the branch with the least available that still has enough."""
    branch = root
    while below := [child for child in branch.branches if child.available(free) >= count]:
        branch = min(below, key=lambda child: (child.available(free), min(child.rows)))
    return _lowest(branch, free, count)


def link(root: Branch, free: set[int], count: int) -> list[int]:
    """The closest branch that has enough. Among equally close branches, the one with the least available."""
    enough = [branch for branch in root.walk() if branch.available(free) >= count]
    if not enough:
        return []
    best = min(enough, key=lambda branch: (-branch.closeness, branch.available(free), min(branch.rows)))
    return _lowest(best, free, count)


def _lowest(branch: Branch, free: set[int], count: int) -> list[int]:
    rows = sorted(branch.rows & free)
    return rows[:count] if len(rows) >= count else []
