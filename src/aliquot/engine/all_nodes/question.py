"""What is asked of the whole Fleet: a request, the cards that it may use, and how to choose among them."""

from dataclasses import dataclass, field

import numpy as np

from aliquot.engine.all_nodes.policy_chain import CardChoice
from aliquot.engine.all_nodes.room import Need, Room, takes
from aliquot.engine.arrays import Bools, Ints, Ranks, lowest, masked
from aliquot.engine.block import Block
from aliquot.engine.card_sets import connected
from aliquot.engine.effort import Effort
from aliquot.engine.view import PolicySettings, View
from aliquot.model import Part, Request, Topology


@dataclass(frozen=True)
class Question:
    """`allowed` are the cards [rows, width] and `nodes` the columns that the pod may use."""

    fleet: Block
    request: Request
    room: Room
    allowed: Bools | None
    nodes: Bools
    choice: CardChoice | None = None
    """None: any cards are acceptable."""
    settings: PolicySettings = field(default_factory=PolicySettings)
    topology: Topology = Topology.ANY
    effort: Effort = field(default_factory=Effort)
    """The effort for all nodes together."""
    among: Bools | None = None
    """The columns that are worth a search; None means all."""

    def view(self, part: Part, need: Need, room: Room, possible: Bools) -> View:
        return View(
            fleet=self.fleet,
            request=self.request,
            part=part,
            settings=self.settings,
            possible=possible,
            need_mib=need.mib,
            need_cores=need.cores,
            free_mib=room.free_mib,
            free_cores=room.free_cores,
        )

    def possible(self, room: Room, need: Need) -> Bools:
        possible = takes(self.fleet, room, need)
        possible &= self.nodes
        if self.allowed is not None:
            possible &= self.allowed
        return possible

    def rank(self, view: View) -> Ranks:
        return np.zeros(1, np.int64) if self.choice is None else self.choice.rank(view)

    def is_connected(self, part: Part) -> bool:
        """Whether the cards of the part must be connected."""
        return self.topology is not Topology.ANY and part.cards > 1

    def connected(self, view: View, keys: Ranks, fits: Bools) -> tuple[Ints, Bools]:
        """The rows of connected cards with low keys, [count, width], and which of the columns in `fits` have such
        cards."""
        fleet, found, keys = self.fleet, np.zeros_like(fits), np.broadcast_to(keys, view.possible.shape)
        rows = lowest(masked(view.possible, keys), view.count)
        (columns,) = fits.nonzero()
        for wiring_id in np.unique(fleet.wiring_id[columns]):
            here = columns[fleet.wiring_id[columns] == wiring_id]
            wiring = fleet.wiring(int(here[0]))
            cards = np.ix_(range(len(wiring.scores)), here)
            rows[:, here], found[here] = connected(wiring, self.topology, view.possible[cards], view.count, keys[cards])
        return rows, found
