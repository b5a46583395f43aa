"""Reading pods and nodes in whatever dialect they speak."""

from dataclasses import dataclass

from aliquot.dialects.protocol import Dialect
from aliquot.dialects.table import DIALECTS, dialect_of
from aliquot.errors import BadRecord, NotPlaced
from aliquot.model import Node, NodeGpus, Placement, Pod, Request
from aliquot.model.records import INVENTORY, PLACEMENT, read_inventory, read_placement


@dataclass(frozen=True)
class Demand:
    """A pod's request and the dialect that it was made in."""

    dialect: Dialect
    request: Request


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


def placement_of(pod: Pod, demand: Demand, cards: NodeGpus) -> Placement:
    """Where a bound pod was put: our record, else its dialect's. Raises NotPlaced or BadRecord."""
    record = pod.metadata.annotations.get(PLACEMENT)
    placement = read_placement(record) if record is not None else demand.dialect.read_back(pod, cards)
    if placement is None:
        raise NotPlaced(f"pod {pod.key} is on node {pod.spec.node_name} without a placement")
    if placement.node != pod.spec.node_name:
        raise BadRecord(f"{PLACEMENT} names node {placement.node}, but the pod is bound to {pod.spec.node_name}")
    return placement
