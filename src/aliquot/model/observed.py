"""Observed nodes: another vendor's device plugin chooses the cards there, among all cards of the kind that a pod asks
for."""

from aliquot.model.constraints import Constraints, Topology
from aliquot.model.gpu import Gpu, NodeGpus
from aliquot.model.request import Request


def choices(cards: NodeGpus, constraints: Constraints) -> list[Gpu]:
    """The cards among which the plugin chooses: whole cards, or the MIG instances of one profile. A pod that asks for
    several kinds, to which no single card is attributed, may have each."""
    if constraints.only_uuids == frozenset():
        return [gpu for gpu in cards.gpus if gpu.uuid not in cards.parents]
    return [gpu for gpu in cards.gpus if gpu.uuid not in cards.parents and constraints.allows_instance(gpu.profile)]


def can_promise(cards: NodeGpus, request: Request) -> bool:
    """Whether the pod gets cards that its constraints allow, if it gets any. On an observed node it may get each of the
    choices.

    `unpromised` in engine/all_nodes/room.py does the same for all nodes at once.
    """
    if not cards.observed:
        return True
    if asks_for_neighbours(request):
        return False
    constraints = request.constraints
    possible = choices(cards, constraints)
    allowed = [gpu for gpu in possible if constraints.allows_model(gpu.model) and constraints.allows_uuid(gpu.uuid)]
    return not allowed or len(allowed) == len(possible)


def asks_for_neighbours(request: Request) -> bool:
    """Whether the cards of a container must reach each other."""
    several = any(container.part.cards > 1 for container in request.containers)
    return several and request.constraints.topology is not Topology.ANY
