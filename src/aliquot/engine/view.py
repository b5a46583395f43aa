"""What policies see of a request and of the Fleet, and what they answer.

A policy is one class in one file below `aliquot.engine.policies`: GPU policies choose cards on a node, node policies
choose between nodes. Both look at all nodes at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from aliquot.engine.arrays import Bools, Floats, Ints, Ranks
from aliquot.engine.block import Block, left_share
from aliquot.engine.state import NodeState
from aliquot.model import Gpu, Life, Part, Request

if TYPE_CHECKING:
    from aliquot.engine.workload import Workload


@dataclass(frozen=True)
class Settings:
    """What policies need to know beside the Fleet and the request."""

    now: float = 0.0
    stale_after: float = 60.0
    """A measured load older than this many seconds says nothing."""
    workload: "Workload | None" = None
    """The shapes of pods to expect."""


@dataclass(frozen=True)
class View:
    """One container's part seen against every card, after the pod's earlier containers were put.

    Arrays are [rows, width] as in the Fleet; `need_*` only broadcast to that. Nobody may write into them.
    """

    fleet: Block
    request: Request
    part: Part
    settings: Settings
    possible: Bools
    """Cards that can take one card's part, every obstacle counted."""
    need_mib: Ints
    need_cores: Ints
    free_mib: Ints
    free_cores: Ints

    @property
    def count(self) -> int:
        """Cards wanted."""
        return self.part.cards

    @property
    def left(self) -> Ints:
        """What is left of each card, memory and cores in one number."""
        if self.free_mib is self.fleet.free_mib:
            return self.fleet.left  # kept up to date in place: nothing to count
        return left_share(self.free_mib, self.free_cores, self.fleet.mib)


@dataclass(frozen=True)
class Outcome:
    """Where the request would go on every node: what a node policy scores. Columns where it does not fit mean
    nothing."""

    fleet: Block
    request: Request
    settings: Settings
    fits: Bools
    seen: Sequence[View]
    """Per container; containers that share their cards are one."""
    lives: Sequence[Life]
    choose: Callable[[], Sequence[Ints]] = field(repr=False)

    @cached_property
    def views(self) -> Sequence[tuple[View, Ints]]:
        """Each view with the chosen rows, [count, width]."""
        return list(zip(self.seen, self.choose(), strict=True))

    @property
    def before_mib(self) -> Ints:
        return self.fleet.free_mib

    @property
    def before_cores(self) -> Ints:
        return self.fleet.free_cores

    @cached_property
    def after_mib(self) -> Ints:
        """[rows, width]"""
        return self.before_mib - self._held([view.need_mib for view in self.seen])

    @cached_property
    def after_cores(self) -> Ints:
        """[rows, width]"""
        return self.before_cores - self._held([view.need_cores for view in self.seen])

    @cached_property
    def taken_mib(self) -> Ints:
        """What the whole pod takes of each node; broadcasts to [width]."""
        return self._taken([view.need_mib for view in self.seen])

    @cached_property
    def taken_cores(self) -> Ints:
        """Broadcasts to [width]."""
        return self._taken([view.need_cores for view in self.seen])

    def _taken(self, needs: Sequence[Ints]) -> Ints:
        if len(needs) > 1:
            return np.asarray(self._held(needs).sum(axis=0))
        (need,) = needs
        if need.ndim < 2:  # every card costs the same, whichever is chosen
            return np.asarray(need * self.seen[0].count)
        (rows,) = self.choose()
        return np.asarray(np.take_along_axis(np.broadcast_to(need, self.fleet.has.shape), rows, axis=0).sum(axis=0))

    def _held(self, needs: Sequence[Ints]) -> Ints:
        """[rows, width]: what the pod holds of each card at most, init containers as max and the rest as sum."""
        shape = self.fleet.has.shape
        main, sidecars, init = (np.zeros(shape, np.int64) for _ in range(3))
        for need, life, (_, rows) in zip(needs, self.lives, self.views, strict=True):
            part = np.zeros(shape, np.int64)
            cost = np.take_along_axis(np.broadcast_to(need, shape), rows, axis=0)
            np.put_along_axis(part, rows, cost, axis=0)
            if life is Life.INIT:
                np.maximum(init, sidecars + part, out=init)
            elif life is Life.SIDECAR:
                sidecars += part
            else:
                main += part
        return np.asarray(np.maximum(main + sidecars, init))


class GpuPolicy(ABC):
    """Which cards of a node a container gets."""

    name: ClassVar[str]

    @abstractmethod
    def rank(self, view: View) -> Ranks:
        """A number per card, broadcastable to [rows, width]: the lowest wins, equal ones go to the lowest row. Cards
        that are not possible are ignored, whatever their rank. NaN is not allowed."""


class PodPolicy(GpuPolicy):
    """One that places whole pods in its own way, for originals that choose for the pod at once; `rank` is for what
    `arrange` leaves alone."""

    @abstractmethod
    def arrange(self, state: NodeState, request: Request) -> Mapping[str, tuple[Gpu, ...]] | None:
        """The whole pod's cards on one node by container name. None leaves the choice to the search, which finds a way
        if there is one. Of nodes that differ only in names one is asked."""

    def steps(self, cards: int, request: Request) -> int:
        """How much work `arrange` is on a node of so many cards, in microseconds or so. What one decision can afford is
        limited; beyond that the search chooses."""
        return 300 + 10 * cards * len(request.containers)


class NodePolicy(ABC):
    """Which node a pod gets."""

    name: ClassVar[str]

    @abstractmethod
    def score(self, outcome: Outcome) -> Floats:
        """A number per column, the highest wins; equal ones go to the smallest node name."""
