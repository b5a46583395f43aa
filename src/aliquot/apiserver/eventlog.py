"""A bounded log of the events of one kind of object, and cursors that follow it.

The log is the only queue: a watcher holds just a position in it. A watcher that falls so far behind that its position
is gone gets `ResourceExpired` (410), so slow watchers cost no memory.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache

import msgspec

from aliquot.apiserver.objects import Key, Object, key_of, with_metadata
from aliquot.apiserver.statuses import ResourceExpired

BATCH = 64
"""Events that a watcher gets at once. It keeps them in memory until its client reads."""


class EventType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A version of an object, encoded once for all readers.

    The dictionary is kept beside it or, if not, decoded when it is needed: the garbage collector looks at every
    dictionary that is kept, which takes most of a second for those of 40,000 pods.
    """

    key: Key
    revision: int
    body: bytes
    """JSON without `apiVersion` and `kind`, which depend on the request."""
    kept: Object | None = None

    @property
    def obj(self) -> Object:
        return _decoded(self.body) if self.kept is None else self.kept


@lru_cache(1024)
def _decoded(body: bytes) -> Object:
    """Watchers look at the same objects at about the same time."""
    decoded: Object = msgspec.json.decode(body)
    return decoded


def encoded(obj: Object, revision: int, *, keep: bool = True) -> Stored:
    """The object as a new version."""
    versioned = with_metadata(obj, resourceVersion=str(revision))
    body = {name: value for name, value in versioned.items() if name not in ("apiVersion", "kind")}
    return Stored(key_of(obj), revision, msgspec.json.encode(body), versioned if keep else None)


class StoreEvent(msgspec.Struct, frozen=True, gc=False):
    change: EventType
    stored: Stored
    previous: Stored | None

    @property
    def revision(self) -> int:
        return self.stored.revision


class EventLog:
    """The last `capacity` events."""

    def __init__(self, capacity: int) -> None:
        self._events: deque[StoreEvent] = deque()
        self._capacity = capacity
        self._forgotten_count = 0
        self._forgotten_revision = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self.closed = False

    def append(self, event: StoreEvent) -> None:
        self._events.append(event)
        if len(self._events) > self._capacity:
            self._forgotten_revision = self._events.popleft().revision
            self._forgotten_count += 1
        self._wake()

    def close(self) -> None:
        """Ends every cursor after the remaining events."""
        self.closed = True
        self._wake()

    def newest_first(self, since: int) -> Iterator[StoreEvent]:
        """The events after a revision, newest first. Raises ResourceExpired if some are gone."""
        self._refuse_forgotten(since)
        for event in reversed(self._events):
            if event.revision <= since:
                return
            yield event

    def cursor(self, since: int) -> "Cursor":
        """A cursor that starts after a revision. Raises ResourceExpired if events since then are gone."""
        missed = sum(1 for _ in self.newest_first(since))
        return Cursor(self, self._forgotten_count + len(self._events) - missed)

    def read(self, position: int) -> list[StoreEvent]:
        """A batch of events from a position. Raises ResourceExpired if the position is gone."""
        if position < self._forgotten_count:
            raise ResourceExpired("too old resource version: the watcher fell behind")
        missed = self._forgotten_count + len(self._events) - position
        return [self._events[-back] for back in range(missed, max(0, missed - BATCH), -1)]

    async def wait(self, seconds: float | None) -> None:
        """Returns at the next event, when the log closes, or after `seconds`."""
        loop = asyncio.get_running_loop()
        wake: asyncio.Future[None] = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _end, wake)
        self._waiting.add(wake)
        try:
            await wake
        finally:
            self._waiting.discard(wake)
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        for wake in self._waiting:
            _end(wake)

    def _refuse_forgotten(self, since: int) -> None:
        if since < self._forgotten_revision:
            raise ResourceExpired(f"too old resource version: {since} ({self._forgotten_revision})")


def _end(wake: "asyncio.Future[None]") -> None:
    if not wake.done():
        wake.set_result(None)


class Cursor:
    """A reader's position in a log."""

    def __init__(self, log: EventLog, position: int) -> None:
        self._log = log
        self._position = position

    @property
    def ended(self) -> bool:
        return self._log.closed

    async def next(self, seconds: float | None = None) -> list[StoreEvent]:
        """The next events: at least one, unless the time is over or the log closes. Raises ResourceExpired."""
        events = self.ready()
        if not events and not self.ended:
            await self._log.wait(seconds)
            events = self.ready()
        return events

    def ready(self) -> list[StoreEvent]:
        """The events that are available now. Raises ResourceExpired."""
        events = self._log.read(self._position)
        self._position += len(events)
        return events
