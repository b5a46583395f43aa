"""The one internal model: pure values that every other room speaks in."""

from aliquot.model.gpu import CORES, Gpu, NodeGpus
from aliquot.model.kubernetes import Node, Object, Pod
from aliquot.model.placement import Charge, Placement, Slice, charges
from aliquot.model.reasons import Reason
from aliquot.model.request import ContainerRequest, Life, Memory, Request, Unit

__all__ = [
    "CORES",
    "Gpu",
    "NodeGpus",
    "Memory",
    "Unit",
    "Life",
    "ContainerRequest",
    "Request",
    "Slice",
    "Placement",
    "Charge",
    "charges",
    "Reason",
    "Object",
    "Pod",
    "Node",
]
