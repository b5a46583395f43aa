"""The list of device ids that the agent offers to kubelet for one resource."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import structlog

from aliquot.agent.id_holders import IdHolders
from aliquot.agent.id_rule import ListedIds, list_ids
from aliquot.agent.node_cards import NodeCards
from aliquot.agent.proto import deviceplugin_pb2 as wire
from aliquot.dialects import Dialect, Resource
from aliquot.errors import BadConfig
from aliquot.model import NodeGpus
from aliquot.signals import Signal

_log = structlog.get_logger()

_MAX_LIST_BYTES = 4 * 2**20
"""gRPC's receive limit. kubelet drops a longer device list and only logs it."""
_HEALTHY, _UNHEALTHY = "Healthy", "Unhealthy"


def offered(dialect: Dialect, cards: NodeGpus) -> Iterator[tuple[Resource, ListedIds]]:
    """The resources of a dialect that this node offers to kubelet, with their ids while nobody holds any.

    Raises BadConfig if the first one cannot be offered. A further one is left out if this node has none of it, or if
    its list is too long for kubelet, which the log says.
    """
    served = [resource for resource in dialect.resources if resource.socket]
    for resource in served:
        listed = list_ids(*_ids(dialect, resource.name, cards), holders=())
        try:
            _refuse_long_list(dialect, resource.name, cards, listed)
        except BadConfig as error:
            if resource is served[0]:
                raise
            _log.error("not offering a resource on this node", resource=resource.name, why=str(error))
            continue
        if listed.ids or resource is served[0]:
            yield resource, listed


def _ids(dialect: Dialect, resource: str, cards: NodeGpus) -> tuple[Sequence[str], frozenset[str]]:
    """The ids of all cards, and those of unhealthy cards."""
    pairs = dialect.device_ids(resource, cards)
    sick = {gpu.uuid for gpu in cards.gpus if not gpu.healthy}
    return [device for device, _ in pairs], frozenset(device for device, uuid in pairs if uuid in sick)


def _message(dialect: Dialect, resource: str, cards: NodeGpus, listed: ListedIds) -> wire.ListAndWatchResponse:
    """The list of a resource for kubelet. Raises BadConfig with the numbers if kubelet would drop it."""
    _refuse_long_list(dialect, resource, cards, listed)
    message = wire.ListAndWatchResponse()
    for each in listed.ids:  # a list of devices would take half as much memory again, for a moment
        message.devices.add(ID=each, health=_health(each, listed))
    return message


def _refuse_long_list(dialect: Dialect, resource: str, cards: NodeGpus, listed: ListedIds) -> None:
    if (size := _size(listed)) > _MAX_LIST_BYTES:
        fewer = dialect.device_ids(resource, replace(cards, unit_mib=2 * cards.unit_mib))
        way_out = f"; use a larger unit than {cards.unit_mib} MiB (--memory-unit)"
        raise BadConfig(
            f"{resource}: the list of {len(listed.ids)} ids has {size} bytes, but kubelet accepts {_MAX_LIST_BYTES}"
            f"{way_out if len(fewer) < len(listed.ids) else ''}"
        )


def _size(listed: ListedIds) -> int:
    """The size of the message with these ids. One that is too long takes seconds to build, so it is only counted."""
    unhealthy = _bytes(listed.unhealthy, _UNHEALTHY) - _bytes(listed.unhealthy, _HEALTHY)
    return _bytes(listed.ids, _HEALTHY) + unhealthy


def _bytes(ids: Collection[str], health: str) -> int:
    """The size of the message with these ids: those of one length are as large as each other."""
    lengths = Counter(len(each.encode()) for each in ids)
    one = {n: wire.ListAndWatchResponse(devices=[wire.Device(ID="0" * n, health=health)]) for n in lengths}
    return sum(count * one[length].ByteSize() for length, count in lengths.items())


def _health(device: str, listed: ListedIds) -> str:
    return _UNHEALTHY if device in listed.unhealthy else _HEALTHY


class DeviceList:
    """The list of one resource, as cards and containers are now. A list that is too long for kubelet does not replace
    the last one. The message is kept: to build one of 800 ids takes 60 times as long as to change it."""

    def __init__(self, dialect: Dialect, resource: Resource, cards: NodeCards, holders: IdHolders) -> None:
        """Raises BadConfig."""
        self.resource = resource
        self.changed: Signal[None] = Signal()
        """Emitted when the list may have changed."""
        self._dialect = dialect
        self._cards = cards
        self._holders = holders
        self._known = cards.current
        self._ids = _ids(dialect, resource.name, cards.current)
        self._listed = self._now()
        self._message = _message(dialect, resource.name, self._known, self._listed)
        cards.changed.subscribe(lambda _: self.changed.emit(None))
        holders.changed.subscribe(self.changed.emit)

    @property
    def ids(self) -> Sequence[str]:
        return self._listed.ids

    async def refresh(self) -> None:
        """Ask kubelet who holds ids now."""
        await self._holders.refresh()

    def current(self) -> tuple[ListedIds, wire.ListAndWatchResponse]:
        """The ids, and the message with them, which changes with the next call."""
        now = self._now()
        if now.ids == self._listed.ids:
            changed = now.unhealthy ^ self._listed.unhealthy
            for place in (place for place, device in enumerate(now.ids) if device in changed) if changed else ():
                self._message.devices[place].health = _health(now.ids[place], now)
            self._listed = now
            return self._listed, self._message
        try:
            self._message = _message(self._dialect, self.resource.name, self._known, now)
            self._listed = now
        except BadConfig as error:
            _log.error("kubelet keeps the last device list", resource=self.resource.name, why=str(error))
        return self._listed, self._message

    def _now(self) -> ListedIds:
        if self._cards.current is not self._known:
            self._known = self._cards.current
            self._ids = _ids(self._dialect, self.resource.name, self._known)
        return list_ids(*self._ids, self._holders.of(self.resource.name))
