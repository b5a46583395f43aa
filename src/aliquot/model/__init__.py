"""The internal model: pure values that every other package uses."""

from aliquot.model.charge import Charge, Life, peak, peak_by, peak_charge
from aliquot.model.constraints import ANY_MIG, NO_CONSTRAINTS, Constraints, ModelConstraint, Topology, is_model
from aliquot.model.gpu import CORES, Gpu, Link, Mode, NodeGpus, made_up_uuid
from aliquot.model.host import NO_HOST, UNKNOWN_HOST, Host
from aliquot.model.kubernetes import Container, Node, Object, Pod
from aliquot.model.placement import Placement, Slice, as_shown, card_of, charges, charges_by_life, cut, numbered_as
from aliquot.model.reasons import OF_MODEL, Reason
from aliquot.model.request import ContainerRequest, Memory, Part, Request, Unit

__all__ = [
    "CORES",
    "Gpu",
    "Host",
    "NO_HOST",
    "UNKNOWN_HOST",
    "Link",
    "Mode",
    "NodeGpus",
    "made_up_uuid",
    "Memory",
    "Unit",
    "Part",
    "Life",
    "ContainerRequest",
    "Request",
    "Constraints",
    "NO_CONSTRAINTS",
    "ModelConstraint",
    "is_model",
    "Topology",
    "ANY_MIG",
    "Slice",
    "cut",
    "Placement",
    "card_of",
    "as_shown",
    "numbered_as",
    "Charge",
    "charges",
    "charges_by_life",
    "peak",
    "peak_by",
    "peak_charge",
    "Reason",
    "OF_MODEL",
    "Object",
    "Pod",
    "Container",
    "Node",
]
