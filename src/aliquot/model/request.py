"""What a pod asks for, independent of any vendor's vocabulary."""

from dataclasses import dataclass, field, replace
from enum import Enum

from aliquot.errors import BadDemand
from aliquot.model.charge import Charge, Life
from aliquot.model.constraints import Constraints
from aliquot.model.gpu import CORES, Gpu, NodeGpus
from aliquot.model.host import NO_HOST, Host


class Unit(Enum):
    MIB = "MiB"
    NODE = "node units"
    PERCENT = "percent of the card"
    SLOT = "MPS slots of the card"


NODE_UNITS = (1, 1024)
"""What one node unit can be, in MiB, as our agent and gpushare's plugin offer it."""


@dataclass(frozen=True, slots=True)
class Memory:
    """An amount of GPU memory. Only the node knows the size of a node unit, and only the card that of a percent."""

    amount: int = 0
    unit: Unit = Unit.MIB

    def mib(self, gpu: Gpu, unit_mib: int) -> int:
        """Rounds down if the card does not divide evenly, so that parts that add up to 100 percent fit on it.

        `_mib` in engine/all_nodes/room.py does the same for all cards at once.
        """
        match self.unit:
            case Unit.MIB:
                return self.amount
            case Unit.NODE:
                return self.amount * unit_mib
            case Unit.PERCENT:
                return self.amount * gpu.mib // 100
            case Unit.SLOT:
                return self.amount * gpu.mib // gpu.slots if gpu.slots else gpu.mib + 1


@dataclass(frozen=True, slots=True)
class Part:
    """The same part of each of `cards` different cards.

    `slots` makes it an MPS part; its cores then follow from the slots unless it names them. The limits say how far a
    container may burst beyond its part while the card is idle; they are not charged.
    """

    cards: int = 1
    cores: int = 0
    memory: Memory = Memory()
    whole: bool = False
    slots: int = 0
    cores_limit: int | None = None
    memory_limit: Memory | None = None

    def __post_init__(self) -> None:
        if self.cards < 1 or min(self.cores, self.memory.amount, self.slots) < 0:
            raise BadDemand(
                f"a part of {self.cards} cards, {self.cores} % of cores, {self.memory.amount} {self.memory.unit.value} "
                f"and {self.slots} slots: a part needs at least one card and no negative amounts"
            )

    def on(self, gpu: Gpu, unit_mib: int) -> Charge:
        """What one card of the part costs on this card."""
        if self.whole:
            return Charge(CORES, gpu.mib, shares=1)
        mib = self.memory.mib(gpu, unit_mib)
        if not self.slots:
            return Charge(self.cores, mib, shares=1)
        cores = self.cores or self.slots * CORES // max(1, gpu.slots)
        return Charge(cores, mib, slots=self.slots)


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    name: str
    part: Part
    life: Life = Life.MAIN


@dataclass(frozen=True, slots=True)
class Request:
    """All GPU containers of one pod, in the order in which they start.

    `together`: they share the same cards, instead of each getting its own. `pod` is `namespace/name`.

    Two fields are for nodes where another agent hands out the cards. `elsewhere` is what the containers get there, if
    that differs. `allocator` is the GPU policy by which that agent chooses cards for one container after another in
    this order; it is empty if the agent follows our choice.

    `host` is what the pod requests of the node besides cards. kube-scheduler checks that; policies weigh it. It is not
    part of what a bound pod holds.
    """

    uid: str
    pod: str
    dialect: str
    containers: tuple[ContainerRequest, ...]
    together: bool = False
    priority: int = 0
    constraints: Constraints = field(default_factory=Constraints)
    elsewhere: tuple[ContainerRequest, ...] = ()
    allocator: str = ""
    host: Host = NO_HOST

    @property
    def differs_elsewhere(self) -> bool:
        return bool(self.elsewhere or self.allocator)

    def of_agent(self, *, other: bool) -> "Request":
        """The request on nodes where our agent, or the `other` agent, hands out the cards."""
        if other:
            return replace(self, containers=self.elsewhere, elsewhere=()) if self.elsewhere else self
        return replace(self, elsewhere=(), allocator="") if self.differs_elsewhere else self

    def on(self, cards: NodeGpus) -> "Request":
        """The request on one node."""
        return self.of_agent(other=cards.are_made_up)

    @property
    def namespace(self) -> str:
        return self.pod.partition("/")[0]

    @property
    def needs_search(self) -> bool:
        """Whether several containers each choose their own cards. Finding out whether they fit then takes a search."""
        return len(self.containers) > 1 and not self.together
