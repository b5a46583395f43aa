"""The latest events of the demo's cluster, as `kubectl get events -w` shows them."""

from collections import deque
from dataclasses import dataclass

import msgspec

from aliquot.kube import Client, Informer
from aliquot.kube.resources import ApiResource
from aliquot.model import Object

_KEPT = 50


class _About(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Event(Object, frozen=True):
    involved_object: _About = _About()
    type: str = ""
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None


_EVENTS = ApiResource("api/v1", "events", _Event, namespaced=True)


@dataclass(frozen=True)
class EventLine:
    """One event. `time` is its time of day in UTC."""

    time: str
    is_warning: bool
    about: str
    reason: str
    message: str


class EventFeed:
    """Watches events and keeps the latest."""

    def __init__(self, client: Client) -> None:
        self._lines: deque[EventLine] = deque(maxlen=_KEPT)
        self._events: Informer[_Event] = Informer(client, _EVENTS, self._on_event)

    async def run(self) -> None:
        await self._events.run()

    def latest(self, count: int) -> list[EventLine]:
        """The latest events, newest last."""
        return list(self._lines)[-count:] if count > 0 else []

    def _on_event(self, _: _Event | None, new: _Event | None) -> None:
        if new is not None:
            time = (new.last_timestamp or "")[11:19]
            self._lines.append(
                EventLine(time, new.type == "Warning", new.involved_object.name, new.reason, new.message)
            )
