"""What one container gets of its pod's placed cards."""

from collections.abc import Iterator
from dataclasses import replace

from aliquot.agent.devices import ContainerEdits, DeviceSource
from aliquot.dialects import Demand, Dialect
from aliquot.model import NodeGpus, Placement, Pod

ALSO_ASKED = "ALIQUOT_ALSO_ASKED"
"""The only variable that a resource adds to a container that gets its devices through another resource."""


def edits_of(
    container: str,
    pod: Pod,
    demand: Demand,
    placement: Placement,
    cards: NodeGpus,
    devices: DeviceSource,
    *,
    with_cdi: bool,
) -> ContainerEdits:
    """The devices of the container's cards, and the variables of its dialect. Raises Refused."""
    parts = placement.containers[container]
    environment = demand.dialect.environment(pod, demand.request, container, placement, cards)
    if not parts:
        return ContainerEdits(environment)
    gpus = [cards.by_uuid[uuid] for uuid in dict.fromkeys(part.uuid for part in parts)]
    edits = devices.edits(gpus, with_cdi=with_cdi)
    return replace(edits, environment={**environment, **edits.environment})


def resources_before(dialect: Dialect) -> Iterator[tuple[str, frozenset[str]]]:
    """Each resource of a dialect, with those that come first: a container that also asks for one of them gets its
    devices through that one."""
    names = [resource.name for resource in dialect.resources]
    for place, name in enumerate(names):
        yield name, frozenset(names[:place])


def edits_beside(resource: str) -> ContainerEdits:
    """What a resource adds to a container that gets its devices through another one: an answer must not be empty."""
    return ContainerEdits({ALSO_ASKED: resource})
