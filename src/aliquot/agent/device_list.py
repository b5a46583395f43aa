"""The list of device ids that the agent offers to kubelet for one resource."""

from collections.abc import Iterator
from dataclasses import replace

import structlog

from aliquot.agent.node_cards import NodeCards
from aliquot.agent.proto import deviceplugin_pb2 as wire
from aliquot.dialects import Dialect, Resource
from aliquot.errors import BadConfig
from aliquot.model import NodeGpus

_log = structlog.get_logger()

_MAX_LIST_BYTES = 4 * 2**20
"""gRPC's receive limit. kubelet drops a longer device list and only logs it."""


def offered(dialect: Dialect, cards: NodeGpus) -> Iterator[tuple[Resource, wire.ListAndWatchResponse]]:
    """The resources of a dialect that this node offers to kubelet.

    Raises BadConfig if the first one cannot be offered. A further one is left out if this node has none of it, or if
    its list is too long for kubelet, which the log says.
    """
    served = [resource for resource in dialect.resources if resource.socket]
    for resource in served:
        try:
            listed = device_list(dialect, resource.name, cards)
        except BadConfig as error:
            if resource is served[0]:
                raise
            _log.error("not offering a resource on this node", resource=resource.name, why=str(error))
            continue
        if listed.devices or resource is served[0]:
            yield resource, listed


def device_list(dialect: Dialect, resource: str, cards: NodeGpus) -> wire.ListAndWatchResponse:
    """The device list of a resource for kubelet. Raises BadConfig with the numbers if kubelet would drop it."""
    healthy = {gpu.uuid: gpu.healthy for gpu in cards.gpus}
    devices = [
        wire.Device(ID=device, health="Healthy" if healthy[uuid] else "Unhealthy")
        for device, uuid in dialect.device_ids(resource, cards)
    ]
    listed = wire.ListAndWatchResponse(devices=devices)
    if (size := listed.ByteSize()) > _MAX_LIST_BYTES:
        fewer = dialect.device_ids(resource, replace(cards, unit_mib=2 * cards.unit_mib))
        way_out = f"; use a larger unit than {cards.unit_mib} MiB (--memory-unit)"
        raise BadConfig(
            f"{resource}: the list of {len(devices)} ids has {size} bytes, but kubelet accepts {_MAX_LIST_BYTES}"
            f"{way_out if len(fewer) < len(devices) else ''}"
        )
    return listed


class DeviceList:
    """The list of one resource, as the cards are now. A list that is too long for kubelet does not replace the last
    one."""

    def __init__(self, dialect: Dialect, resource: Resource, cards: NodeCards) -> None:
        """Raises BadConfig."""
        self.resource = resource
        self.cards = cards
        self._dialect = dialect
        self._last = device_list(dialect, resource.name, cards.current)

    def current(self) -> wire.ListAndWatchResponse:
        try:
            self._last = device_list(self._dialect, self.resource.name, self.cards.current)
        except BadConfig as error:
            _log.error("kubelet keeps the last device list", resource=self.resource.name, why=str(error))
        return self._last
