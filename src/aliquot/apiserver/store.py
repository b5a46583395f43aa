"""All objects by collection, namespace and name, under one revision counter. Who writes applies the rules.

Every method is atomic: nothing here awaits, so two requests never interleave.
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import TypeAlias

from aliquot.apiserver.eventlog import Cursor, EventLog, EventType, Stored, StoreEvent, encoded
from aliquot.apiserver.objects import Key, Object, key_of
from aliquot.apiserver.statuses import ResourceExpired, ResourceVersionTooLarge

LOG_CAPACITY = 16_384

Listener: TypeAlias = Callable[[str, StoreEvent], None]
"""Gets the collection and the event."""


class _Collection:
    def __init__(self, log_capacity: int) -> None:
        self.objects: dict[Key, Stored] = {}
        self.keys: list[Key] = []
        """In order."""
        self.log = EventLog(log_capacity)


class Store:
    """Objects in memory. `collection` is a resource's storage name, such as `pods`. Revisions count from `first` in
    steps of `step`. With many objects, a store that does not keep them as dictionaries spares the garbage collector."""

    def __init__(
        self, log_capacity: int = LOG_CAPACITY, *, first: int = 0, step: int = 1, keeps_dictionaries: bool = True
    ) -> None:
        self._keeps_dictionaries = keeps_dictionaries
        self._log_capacity = log_capacity
        self._collections: dict[str, _Collection] = {}
        self._first = self._revision = first
        self._step = step
        self._closed = False
        self._listeners: list[Listener] = []

    def on_change(self, listener: Listener) -> None:
        """Add a listener, called within every write. It may read and must not write."""
        self._listeners.append(listener)

    @property
    def revision(self) -> int:
        """The newest resourceVersion."""
        return self._revision

    def get(self, collection: str, key: Key) -> Stored | None:
        return self._of(collection).objects.get(key)

    def put(self, collection: str, obj: Object) -> Stored:
        """Add the object, or replace the one with its key."""
        held, key = self._of(collection), key_of(obj)
        objects, previous = held.objects, held.objects.get(key)
        if previous is None:
            insort(held.keys, key)
        objects[key] = self.preview(obj)
        self._record(collection, EventType.MODIFIED if previous else EventType.ADDED, objects[key], previous)
        return objects[key]

    def put_if_changed(self, collection: str, obj: Object) -> bool:
        """Put the object, unless it is stored already. Returns whether it was put."""
        stored = self.get(collection, key_of(obj))
        if stored is not None and stored.body == encoded(obj, stored.revision, keep=False).body:
            return False
        self.put(collection, obj)
        return True

    def remove(self, collection: str, key: Key) -> Stored:
        """Remove the object. The result has the revision of the removal."""
        held = self._of(collection)
        previous = held.objects.pop(key)
        del held.keys[bisect_left(held.keys, key)]
        final = self.preview(previous.obj)
        self._record(collection, EventType.DELETED, final, previous)
        return final

    def preview(self, obj: Object) -> Stored:
        """The object as the next write would store it, for a dry run."""
        return encoded(obj, self._revision + self._step, keep=self._keeps_dictionaries)

    def snapshot(self, collection: str, at: int | None = None) -> list[Stored]:
        """All objects by key, now or at a revision. Raises ResourceExpired, ResourceVersionTooLarge."""
        if at is not None and at != self._revision:
            objects = self._undone(collection, at)
            return [objects[key] for key in sorted(objects)]  # almost in order already
        held = self._of(collection)
        return [held.objects[key] for key in held.keys]

    def watch(self, collection: str, since: int) -> Cursor:
        """A cursor over the events after a revision. Raises ResourceExpired if some are gone,
        ResourceVersionTooLarge."""
        self.require(since)
        return self._of(collection).log.cursor(since)

    def require(self, revision: int) -> None:
        """Raises ResourceExpired for a revision of another store, ResourceVersionTooLarge for one yet to come."""
        if revision < self._first or (revision - self._first) % self._step:
            raise ResourceExpired(f"too old resource version: {revision} is of another server, or of an earlier run")
        if revision > self._revision:
            raise ResourceVersionTooLarge(revision, self._revision)

    def close(self) -> None:
        """End every watch, including later ones."""
        self._closed = True
        for collection in self._collections.values():
            collection.log.close()

    def _undone(self, collection: str, at: int) -> dict[Key, Stored]:
        self.require(at)
        held = self._of(collection)
        objects = {key: held.objects[key] for key in held.keys}
        for event in held.log.newest_first(at):
            if event.previous is None:
                del objects[event.stored.key]
            else:
                objects[event.previous.key] = event.previous
        return objects

    def _record(self, collection: str, change: EventType, stored: Stored, previous: Stored | None) -> None:
        self._revision = stored.revision
        event = StoreEvent(change, stored, previous)
        self._of(collection).log.append(event)
        for listener in self._listeners:
            listener(collection, event)

    def _of(self, collection: str) -> _Collection:
        held = self._collections.get(collection)
        if held is None:
            held = self._collections[collection] = _Collection(self._log_capacity)
            if self._closed:
                held.log.close()
        return held
