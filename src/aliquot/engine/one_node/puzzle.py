"""Fitting one pod on one node, as bare numbers: cards with room, containers with needs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import combinations
from operator import or_
from typing import TypeAlias

from aliquot.engine.one_node.obstacles import no_room, unwanted
from aliquot.engine.state import NodeState
from aliquot.engine.topology import Wiring, wiring_of
from aliquot.model import Life, Request, Topology
from aliquot.model.selling import left_of

Size: TypeAlias = tuple[int, int, int]
"""MiB, cores, MPS slots."""
Cards: TypeAlias = tuple[int, ...]
"""Rows of cards."""


@dataclass(frozen=True)
class Puzzle:
    """Sets of cards and of containers are bits of an integer.

    A set of containers that fits on a card still fits without one of them; the searches rely on it.
    """

    free: Sequence[Size]
    wants: Sequence[int]
    """How many different cards each container takes."""
    needs: Sequence[Sequence[Size]]
    """[container][card]"""
    allowed: Sequence[int]
    """Per container, the cards that could take it if it were alone."""
    lives: Sequence[Life]
    topology: Topology = Topology.ANY
    wiring: Wiring | None = None
    _holds: dict[tuple[int, int], bool] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def running(self) -> int:
        """Containers that run side by side: all but the init containers."""
        return sum(1 << container for container, life in enumerate(self.lives) if life is not Life.INIT)

    @cached_property
    def sidecars_of(self) -> Sequence[int]:
        """Per init container, the sidecars that start earlier and so run with it."""
        sidecars, sidecars_of = 0, []
        for container, life in enumerate(self.lives):
            sidecars_of.append(sidecars if life is Life.INIT else 0)
            sidecars |= (life is Life.SIDECAR) << container
        return sidecars_of

    @cached_property
    def by_slots(self) -> int:
        """Containers whose parts are MPS slots. They share a card only with each other."""
        return sum(1 << container for container, sizes in enumerate(self.needs) if sizes and sizes[0][2])

    def holds(self, card: int, members: int) -> bool:
        """Whether a card can hold these containers together."""
        key = (card, members)
        known = self._holds.get(key)
        if known is None:
            known = self._holds[key] = self._can_hold(card, members)
        return known

    def _can_hold(self, card: int, members: int) -> bool:
        if members & self.by_slots and members & ~self.by_slots:
            return False
        bit = 1 << card
        if not all(self.allowed[container] & bit for container in bits(members)):
            return False
        phases = [members & self.running]
        phases += [members & self.sidecars_of[init] | 1 << init for init in bits(members & ~self.running)]
        return all(self._fits(card, phase) for phase in phases)

    def _fits(self, card: int, members: int) -> bool:
        mib, cores, slots = self.free[card]
        for container in bits(members):
            size = self.needs[container][card]
            mib -= size[0]
            cores -= size[1]
            slots -= size[2]
        return mib >= 0 and cores >= 0 and slots >= 0

    @property
    def is_picky(self) -> bool:
        """Whether a container needs connected cards, so that not any cards that hold it are acceptable."""
        useful = bits(reduce(or_, self.allowed, 0))
        return max(self.wants, default=0) > 1 and not all(
            self.wiring is None or self.wiring.joins(card, other, self.topology)
            for card, other in combinations(useful, 2)
        )


def bits(members: int) -> list[int]:
    found = []
    while members:
        lowest = members & -members
        found.append(lowest.bit_length() - 1)
        members ^= lowest
    return found


def puzzle_of(state: NodeState, request: Request) -> Puzzle:
    """The pod on the node, by the plain rules."""
    gpus, unit_mib = state.cards.gpus, state.cards.unit_mib
    useful = [row for row, gpu in enumerate(gpus) if unwanted(state, gpu, request) is None]
    containers = request.containers
    left = [left_of(gpu, state.taken(gpu)) for gpu in gpus]
    charges = [[container.part.on(gpu, unit_mib) for gpu in gpus] for container in containers]
    allowed = [
        sum(1 << row for row in useful if no_room(state, gpus[row], container.part) is None) for container in containers
    ]
    return Puzzle(
        free=[(card.mib, card.cores, card.slots) for card in left],
        wants=[container.part.cards for container in containers],
        needs=[[(charge.mib, charge.cores, charge.slots) for charge in row] for row in charges],
        allowed=allowed,
        lives=[container.life for container in containers],
        topology=request.constraints.topology,
        wiring=None if request.constraints.topology is Topology.ANY else wiring_of(gpus),
    )
