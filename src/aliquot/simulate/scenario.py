"""What is simulated: a cluster, a list of pods, and the order in which they arrive."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from aliquot.errors import BadInput
from aliquot.model import NO_HOST, Charge, Host, NodeGpus, Request, peak


@dataclass(frozen=True)
class SimulatedNode:
    """A node, with what `host` has for pods in all. Pods that were there before, and that stay, hold `used` and
    `taken`. `daemons` is the part of `taken` that would go with the node, such as that of DaemonSets."""

    cards: NodeGpus
    host: Host
    labels: Mapping[str, str] = field(default_factory=dict)
    used: Mapping[str, Charge] = field(default_factory=dict)
    taken: Host = NO_HOST
    daemons: Host = NO_HOST

    @property
    def name(self) -> str:
        return self.cards.node

    @property
    def model(self) -> str:
        """The model of its cards; empty if it has none."""
        return self.cards.gpus[0].model if self.cards.gpus else ""

    @property
    def can_go(self) -> bool:
        """Whether no pod that stays would need another node."""
        return not self.used and self.taken == self.daemons

    @property
    def sellable(self) -> int:
        """Cards that pods can get."""
        return sum(self.cards.sells(gpu) for gpu in self.cards.gpus)


@dataclass(frozen=True)
class SimulatedPod:
    """A pod. Without GPU its request has no containers. `kind` is the class of job to which its list counts it.
    `selector` are labels that its node must have. Times are in seconds; a pod without them is there from the first
    moment, and stays."""

    request: Request
    kind: str = ""
    selector: Mapping[str, str] = field(default_factory=dict)
    arrives: float = 0.0
    leaves: float | None = None

    @property
    def name(self) -> str:
        return self.request.pod

    @property
    def cards(self) -> int:
        """The most cards that its containers ask for at any time."""
        counts = [(container.life, container.part.cards) for container in self.request.containers]
        return max((count for _, count in counts), default=0) if self.request.together else peak(counts)


@dataclass(frozen=True)
class World:
    """A cluster and a list of pods."""

    nodes: Sequence[SimulatedNode]
    pods: Sequence[SimulatedPod]

    def __post_init__(self) -> None:
        names = [node.name for node in self.nodes]
        if "" in names:
            raise BadInput("a node has no name")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise BadInput(f"node {twice} is there twice")
        if not self.capacity:
            raise BadInput("the cluster has no card that pods can get: there is nothing to simulate")
        for pod in self.pods:
            if not isfinite(pod.arrives) or not isfinite(pod.leaves or 0.0):
                raise BadInput(f"pod {pod.name}: its times are not numbers of seconds")

    @property
    def capacity(self) -> int:
        """The number of cards."""
        return sum(node.sellable for node in self.nodes)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod of the list arrives, and leaves again at a time on the same scale, or stays."""

    pod: int
    at: float
    leaves: float | None = None


@dataclass(frozen=True)
class Order:
    """Who comes when, by ascending time, and in which order nodes stand: of equally good nodes, the first one wins.
    Without `ranks` they stand in the order of their names."""

    name: str
    arrivals: Sequence[Arrival]
    ranks: Sequence[int] = ()
    """Of each node of the world."""


@dataclass(frozen=True)
class Scene:
    """A world, and orders in which its pods arrive. `variant` says what was changed; empty if nothing was."""

    world: World
    orders: Sequence[Order]
    variant: str = ""

    def __post_init__(self) -> None:
        if not all(order.arrivals for order in self.orders):
            raise BadInput("no pod arrives: there is nothing to simulate")
