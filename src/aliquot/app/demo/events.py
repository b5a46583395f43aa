"""The latest events of the demo's cluster, as `kubectl get events -w` shows them."""

from collections import deque
from dataclasses import dataclass

from aliquot.kube import EVENTS, Client, Informer
from aliquot.kube.resources import Event

_KEPT = 50


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
        self._events: Informer[Event] = Informer(client, EVENTS, self._on_event)

    async def run(self) -> None:
        await self._events.run()

    def latest(self, count: int) -> list[EventLine]:
        """The latest events, newest last."""
        return list(self._lines)[-count:] if count > 0 else []

    def _on_event(self, _: Event | None, new: Event | None) -> None:
        if new is not None:
            time = (new.last_timestamp or "")[11:19]
            self._lines.append(
                EventLine(time, new.type == "Warning", new.involved_object.name, new.reason, new.message)
            )
