"""What policies see of a request and of the Fleet, and what they return.

A policy is a class in a file of its own under `aliquot.engine.policies`. GPU policies choose cards on a node, node
policies choose between nodes. Both look at all nodes at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from aliquot.engine.arrays import Bools, Floats, Ints, Ranks
from aliquot.engine.block import Block, left_share
from aliquot.engine.shape_counts import ShapeCounts
from aliquot.engine.state import NodeState
from aliquot.engine.workload import COMMON, Workload
from aliquot.model import Gpu, Life, Part, Request, peak_by
from aliquot.model.load import FRESH_SECONDS

_LEARNT: WeakKeyDictionary[ShapeCounts, tuple[int, Workload]] = WeakKeyDictionary()


def _learnt(seen: ShapeCounts) -> Workload:
    version, workload = _LEARNT.get(seen, (-1, COMMON))
    if version != seen.version:
        workload = Workload.learnt(seen.shapes)
        _LEARNT[seen] = seen.version, workload
    return workload


@dataclass(frozen=True)
class PolicySettings:
    """What policies need to know besides the Fleet and the request."""

    now: float = 0.0
    stale_after: float = FRESH_SECONDS
    """A measured load that is older than this many seconds is ignored."""
    workload: Workload | None = None
    """The pods to expect. Without it, they are expected to be like those that were `seen`."""
    seen: ShapeCounts | None = None

    @property
    def expected(self) -> Workload:
        return self.workload or (_learnt(self.seen) if self.seen else COMMON)


@dataclass(frozen=True)
class View:
    """One container's part on every card, after the pod's earlier containers were placed.

    Arrays are [rows, width] as in the Fleet; `need_*` only broadcast to that. They must not be written to.
    """

    fleet: Block
    request: Request
    part: Part
    settings: PolicySettings
    possible: Bools
    """Cards that can take the part, all obstacles considered."""
    need_mib: Ints
    need_cores: Ints
    free_mib: Ints
    free_cores: Ints

    @property
    def count(self) -> int:
        """The number of cards that the container wants."""
        return self.part.cards

    @property
    def left(self) -> Ints:
        """What is left of each card, memory and cores in one number."""
        if self.free_mib is self.fleet.free_mib:
            return self.fleet.left  # kept up to date in place
        return left_share(self.free_mib, self.free_cores, self.fleet.mib)


@dataclass(frozen=True)
class PolicyOutcome:
    """Where the request would go on every node; node policies score it. Columns where it does not fit have no
    meaning."""

    fleet: Block
    request: Request
    settings: PolicySettings
    fits: Bools
    seen: Sequence[View]
    """One per container. Containers that share their cards have one view together."""
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
        if len(needs) != 1:
            return np.asarray(self._held(needs).sum(axis=0))
        (need,) = needs
        if need.ndim < 2:  # every card costs the same, whichever is chosen
            count = self.seen[0].count
            return need if count == 1 else np.asarray(need * count)
        (rows,) = self.choose()
        return np.asarray(np.take_along_axis(np.broadcast_to(need, self.fleet.has.shape), rows, axis=0).sum(axis=0))

    def _held(self, needs: Sequence[Ints]) -> Ints:
        """[rows, width]: the peak of what the pod holds of each card."""
        shape = self.fleet.has.shape
        if not needs:
            return np.zeros(shape, np.int64)
        parts = []
        for need, (_, rows) in zip(needs, self.views, strict=True):
            part = np.zeros(shape, np.int64)
            cost = np.take_along_axis(np.broadcast_to(need, shape), rows, axis=0)
            np.put_along_axis(part, rows, cost, axis=0)
            parts.append(part)
        return np.asarray(peak_by(np.maximum, zip(self.lives, parts, strict=True)))


class GpuPolicy(ABC):
    """Chooses the cards of a node that a container gets."""

    name: ClassVar[str]
    uses_load: ClassVar[bool] = False
    """Whether the choice depends on how busy cards are. The decision log has load only where a choice depends on it."""

    @abstractmethod
    def rank(self, view: View) -> Ranks:
        """A number per card, broadcastable to [rows, width]. The lowest wins; ties go to the lowest row. Ranks of
        impossible cards are ignored. NaN is not allowed."""


class PodPolicy(GpuPolicy):
    """A GPU policy that places whole pods, for originals that choose for the pod at once. `rank` is for pods that
    `arrange` declines, or need not be asked about."""

    def is_rank_enough(self, request: Request) -> bool:  # noqa: ARG002 (for those that can tell)
        """Whether the best cards by `rank` are those that `arrange` would choose, on every node: `rank` is much
        cheaper."""
        return False

    @abstractmethod
    def arrange(self, state: NodeState, request: Request) -> Mapping[str, tuple[Gpu, ...]] | None:
        """The cards of the whole pod on one node, by container name. None leaves the choice to the search, which finds
        a placement if there is one. Of nodes that differ only in their names, only one is asked."""

    def steps(self, cards: int, request: Request) -> int:
        """The cost of `arrange` on a node with this many cards, in microseconds or so. One decision can afford a
        limited amount; beyond that the search chooses."""
        return 300 + 10 * cards * len(request.containers)


class NodePolicy(ABC):
    """Chooses the node that a pod gets."""

    name: ClassVar[str]
    uses_load: ClassVar[bool] = False
    """As of GPU policies."""
    leaves_ties: ClassVar[bool] = False
    """Equal nodes are left to kube-scheduler, as the policy's original does. Where nobody else chooses, the smallest
    name wins."""

    @abstractmethod
    def score(self, outcome: PolicyOutcome) -> Floats:
        """A number per column. The highest wins; ties go to the smallest node name."""

    def score_without_gpu(self, outcome: PolicyOutcome) -> Floats:
        """The same for a pod that asks for no GPU. By default all nodes are equal."""
        return np.zeros(outcome.fleet.width)

    def why(self, outcome: PolicyOutcome, column: int) -> str:  # noqa: ARG002 (for those that have more to say)
        """What the score of a column is made of, for the decision log."""
        return ""
