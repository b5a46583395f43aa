"""Reading pods and nodes in whatever dialect they speak."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aliquot.dialects.protocol import Dialect
from aliquot.dialects.table import DIALECTS, dialect_of
from aliquot.errors import BadRecord, NotPlaced, Refused
from aliquot.model import Charge, Gpu, Node, NodeGpus, Placement, Pod, Request, Slice, charges
from aliquot.model.records import INVENTORY, PLACEMENT, read_inventory, read_placement


@dataclass(frozen=True)
class Demand:
    """A pod's request and the dialect that it was made in."""

    dialect: Dialect
    request: Request


@dataclass(frozen=True)
class Holding:
    """What a bound pod holds of its node's cards.

    Where it cannot be told which card that is, `doubt` says why, and the pod is charged on every card: whichever it
    has must not be sold again.
    """

    placement: Placement
    charges: Mapping[str, Charge]
    doubt: str = ""


def demand_of(pod: Pod) -> Demand | None:
    """What a pod asks for; None without GPU. Raises BadDemand."""
    dialect = dialect_of(pod)
    return Demand(dialect, dialect.demand(pod)) if dialect else None


def cards_of(node: Node) -> NodeGpus:
    """A node's cards: as its agent published them, else as an original's plug-in left them in its status."""
    inventory = node.metadata.annotations.get(INVENTORY)
    if inventory is not None:
        return read_inventory(node.metadata.name, inventory)
    seen = (dialect.capacity(node) for dialect in DIALECTS.values())
    return next((cards for cards in seen if cards), NodeGpus(node.metadata.name, (), unit_mib=1))


def holding_of(pod: Pod, cards: NodeGpus) -> Holding | None:
    """What a bound pod holds; None without GPU. Raises BadDemand, and NotPlaced or BadRecord for a pod that has got
    nothing yet."""
    dialect = dialect_of(pod)
    if dialect is None:
        return None
    request = dialect.held(pod)
    try:
        placement = placement_of(pod, Demand(dialect, request), cards)
    except (BadRecord, Refused) as error:
        if not dialect.handed_over(pod):
            raise
        everywhere = Charge(request.cores, request.memory.mib(cards.unit_mib))
        unknown = Placement(cards.node, dialect.name, {})
        return Holding(unknown, {gpu.uuid: everywhere for gpu in cards.gpus}, str(error))
    return Holding(placement, charges(placement, request))


def placement_of(pod: Pod, demand: Demand, cards: NodeGpus) -> Placement:
    """Where a bound pod was put: our record, else its dialect's. Raises NotPlaced or BadRecord.

    The record says which card; how large the part is, and where the card's device node is, is never taken from it.
    """
    record = pod.metadata.annotations.get(PLACEMENT)
    placement = read_placement(record) if record is not None else demand.dialect.read_back(pod, cards)
    if placement is None:
        raise NotPlaced(f"pod {pod.key} is on node {pod.spec.node_name} without a placement")
    if placement.node != pod.spec.node_name:
        raise BadRecord(f"{PLACEMENT} names node {placement.node}, but the pod is bound to {pod.spec.node_name}")
    if placement.dialect != demand.dialect.name:
        raise BadRecord(f"{PLACEMENT} is of dialect {placement.dialect}, but the pod speaks {demand.dialect.name}")
    return _as_demanded(_on_known_cards(placement, cards), demand.request, cards)


def _on_known_cards(placement: Placement, cards: NodeGpus) -> Placement:
    """The same cards as the node has them now; ids from the time before its inventory become real ones."""
    known = {
        name: tuple(_on_known_card(part, placement.node, cards) for part in parts)
        for name, parts in placement.containers.items()
    }
    return replace(placement, containers=known)


def _on_known_card(part: Slice, node: str, cards: NodeGpus) -> Slice:
    gpu = cards.by_uuid.get(part.uuid)
    if gpu is None and part.uuid == f"{node}/{part.index}":
        gpu = cards.by_index.get(part.index)
    return _moved(part, gpu) if gpu else part


def _moved(part: Slice, gpu: Gpu) -> Slice:
    return replace(part, uuid=gpu.uuid, index=gpu.index, minor=gpu.minor)


def _as_demanded(placement: Placement, request: Request, cards: NodeGpus) -> Placement:
    """Every container holds at least what it asks for, whatever the record says: users can write records."""
    containers = dict(placement.containers)
    for container in request.containers:
        parts = containers.get(container.name)
        if not parts:
            raise BadRecord(f"{PLACEMENT} has no part for container {container.name}")
        short_mib = max(0, container.memory.mib(cards.unit_mib) - sum(part.mib for part in parts))
        short_cores = max(0, container.cores - sum(part.cores for part in parts))
        first = replace(parts[0], mib=parts[0].mib + short_mib, cores=parts[0].cores + short_cores)
        containers[container.name] = (first, *parts[1:])
    return replace(placement, containers=containers)
