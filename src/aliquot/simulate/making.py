"""Makes nodes and requests from the plain amounts that lists have."""

from dataclasses import replace

from aliquot.engine.workload import WHOLE
from aliquot.model import (
    CORES,
    NO_CONSTRAINTS,
    Constraints,
    ContainerRequest,
    Gpu,
    Host,
    Link,
    Memory,
    ModelConstraint,
    NodeGpus,
    Part,
    Request,
    Unit,
    made_up_uuid,
)
from aliquot.simulate.scenario import SimulatedNode

DIALECT = "aliquot"
CARD_MIB = 100 * WHOLE
"""The memory of a card whose list does not say it. Every percent of it is a whole number of MiB."""


def simulated_node(name: str, model: str, cards: int, card_mib: int, host: Host) -> SimulatedNode:
    gpus = (Gpu(f"{name}-{index}", index, index, model, card_mib) for index in range(cards))
    return SimulatedNode(NodeGpus(name, tuple(gpus), 1, model=model), host)


def simulated_request(name: str, part: Part | None, host: Host, models: tuple[str, ...]) -> Request:
    containers = () if part is None else (ContainerRequest("main", part),)
    constraints = Constraints((ModelConstraint(models),)) if models else NO_CONSTRAINTS
    return Request(name, name, DIALECT, containers, constraints=constraints, host=host)


def part_of_share(cards: int, milli: int) -> Part:
    """A share of each card, in thousandths; rounded up to percent, in which the engine counts."""
    if milli == WHOLE:
        return Part(cards, whole=True)
    return Part(cards, memory=Memory(-(-milli * CORES // WHOLE), Unit.PERCENT))


def node_like(node: SimulatedNode, name: str) -> SimulatedNode:
    """Another node with the same hardware, without any pod."""
    made_up = node.cards.are_made_up
    uuids = {gpu.uuid: made_up_uuid(name, gpu.index) if made_up else f"{name}-{gpu.index}" for gpu in node.cards.gpus}
    gpus = (
        replace(
            gpu,
            uuid=uuids[gpu.uuid],
            parent=uuids.get(gpu.parent, ""),
            links=tuple(Link(uuids[link.uuid], link.score) for link in gpu.links if link.uuid in uuids),
        )
        for gpu in node.cards.gpus
    )
    return SimulatedNode(replace(node.cards, node=name, gpus=tuple(gpus)), node.host, node.labels)
