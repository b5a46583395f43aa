"""Reading pods and nodes in whatever dialect they speak."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aliquot.dialects.protocol import Dialect
from aliquot.dialects.table import Dialects
from aliquot.errors import BadRecord, NotPlaced, Refused
from aliquot.model import Charge, Gpu, Node, NodeGpus, Part, Placement, Pod, Request, Slice, charges, cut
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


def demand_of(pod: Pod, dialects: Dialects) -> Demand | None:
    """What a pod asks for; None without GPU. Raises BadDemand.

    Its wishes may be said in the words of any dialect."""
    dialect = dialects.of(pod)
    if dialect is None:
        return None
    request = dialect.demand(pod)
    wishes = request.wishes
    for other in dialects.values():
        wishes &= other.wishes(pod)
    return Demand(dialect, replace(request, wishes=wishes))


def cards_of(node: Node, dialects: Dialects) -> NodeGpus:
    """A node's cards: as its agent published them, else as an original's plug-in left them in its status."""
    inventory = node.metadata.annotations.get(INVENTORY)
    if inventory is not None:
        return read_inventory(node.metadata.name, inventory)
    seen = (dialect.capacity(node) for dialect in dialects.values())
    return next((cards for cards in seen if cards), NodeGpus(node.metadata.name, (), unit_mib=1))


def holding_of(pod: Pod, cards: NodeGpus, dialects: Dialects) -> Holding | None:
    """What a bound pod holds; None without GPU. Raises BadDemand, and NotPlaced or BadRecord for a pod that has got
    nothing yet."""
    dialect = dialects.of(pod)
    if dialect is None:
        return None
    request = dialect.held(pod)
    try:
        placement = placement_of(pod, Demand(dialect, request), cards)
    except (BadRecord, Refused) as error:
        if not dialect.handed_over(pod):
            raise
        unknown = Placement(cards.node, dialect.name, {})
        return Holding(unknown, {gpu.uuid: _all_on(gpu, request, cards) for gpu in cards.gpus}, str(error))
    return Holding(placement, charges(placement, request))


def _all_on(gpu: Gpu, request: Request, cards: NodeGpus) -> Charge:
    """Every container of a request on one card."""
    parts = {container.name: (cut(container.part, gpu, cards.unit_mib),) for container in request.containers}
    return charges(Placement(cards.node, request.dialect, parts), request)[gpu.uuid]


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
    """Every container holds what it asks for, whatever the record says: users can write records."""
    containers = dict(placement.containers)
    for container in request.containers:
        parts = containers.get(container.name, ())
        if len({part.uuid for part in parts}) < container.part.cards:
            raise BadRecord(
                f"{PLACEMENT} names {len(parts)} cards for container {container.name}, "
                f"which asks for {container.part.cards}"
            )
        containers[container.name] = tuple(_as_asked(part, container.part, cards) for part in parts)
    return replace(placement, containers=containers)


def _as_asked(given: Slice, part: Part, cards: NodeGpus) -> Slice:
    gpu = cards.by_uuid.get(given.uuid)
    return cut(part, gpu, cards.unit_mib) if gpu else given
