"""Small worlds."""

from aliquot.model import Host, Part
from aliquot.simulate.making import part_of_share, simulated_node, simulated_request
from aliquot.simulate.scenario import Arrival, Order, SimulatedNode, SimulatedPod, World

CARD_MIB = 100_000


def node(
    name: str = "n1", cards: int = 2, model: str = "T4", cpu: int = 32_000, memory: int = 100_000
) -> SimulatedNode:
    return simulated_node(name, model, cards, CARD_MIB, Host(cpu, memory))


def pod(
    name: str = "p",
    cards: int = 1,
    milli: int = 1000,
    *,
    cpu: int = 1000,
    memory: int = 1000,
    models: tuple[str, ...] = (),
    kind: str = "",
    arrives: float = 0.0,
    leaves: float | None = None,
) -> SimulatedPod:
    part: Part | None = part_of_share(cards, milli) if cards else None
    request = simulated_request(name, part, Host(cpu, memory), models)
    return SimulatedPod(request, kind, arrives=arrives, leaves=leaves)


def one_by_one(world: World, name: str = "listed") -> Order:
    return Order(name, [Arrival(number, number) for number in range(len(world.pods))])
