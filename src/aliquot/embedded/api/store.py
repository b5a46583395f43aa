"""All objects, by collection, namespace and name, under one revision counter. It remembers; the registry rules.

Every method returns at once and is atomic: nothing here awaits, so two requests never interleave within one.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from aliquot.embedded.api.eventlog import Change, Cursor, Event, EventLog, Stored, encoded
from aliquot.embedded.api.objects import Key, Object, key_of
from aliquot.embedded.api.ownership import Ownership, Place
from aliquot.embedded.api.statuses import ResourceVersionTooLarge

LOG_CAPACITY = 16_384

Listener: TypeAlias = Callable[[str, Event], None]
"""Is told the collection and what happened in it."""


class _Collection:
    def __init__(self, log_capacity: int) -> None:
        self.objects: dict[Key, Stored] = {}
        self.log = EventLog(log_capacity)


class Store:
    """Objects in memory. `collection` is a resource's storage name, such as `pods`."""

    def __init__(self, log_capacity: int = LOG_CAPACITY) -> None:
        self._log_capacity = log_capacity
        self._collections: dict[str, _Collection] = {}
        self._revision = 0
        self._closed = False
        self._ownership = Ownership()
        self._listeners: list[Listener] = []

    def on_change(self, listener: Listener) -> None:
        """Called at once for every write, within it: it may look, and must not write."""
        self._listeners.append(listener)

    @property
    def revision(self) -> int:
        """The newest resourceVersion that was given out."""
        return self._revision

    def get(self, collection: str, key: Key) -> Stored | None:
        return self._of(collection).objects.get(key)

    def put(self, collection: str, obj: Object) -> Stored:
        """Adds the object, or takes the place of the one with its key."""
        objects, key = self._of(collection).objects, key_of(obj)
        previous = objects.get(key)
        objects[key] = self.preview(obj)
        self._record(collection, Change.MODIFIED if previous else Change.ADDED, objects[key], previous)
        return objects[key]

    def remove(self, collection: str, key: Key) -> Stored:
        """Takes the object out; the answer carries the revision of its removal."""
        previous = self._of(collection).objects.pop(key)
        final = self.preview(previous.obj)
        self._record(collection, Change.DELETED, final, previous)
        return final

    def preview(self, obj: Object) -> Stored:
        """The object as it would be stored by the next write; a dry run ends here."""
        return encoded(obj, self._revision + 1)

    def snapshot(self, collection: str, at: int | None = None) -> list[Stored]:
        """Every object in the order of its key, now or as of a revision. Raises Expired, ResourceVersionTooLarge."""
        objects = self._of(collection).objects
        if at is not None and at != self._revision:
            objects = self._undone(collection, at)
        return [objects[key] for key in sorted(objects)]

    def watch(self, collection: str, since: int) -> Cursor:
        """What happens after a revision. Raises Expired where part of it is forgotten, ResourceVersionTooLarge."""
        if since > self._revision:
            raise ResourceVersionTooLarge(since, self._revision)
        return self._of(collection).log.cursor(since)

    def namespaced_keys(self, namespace: str) -> Iterable[tuple[str, Key]]:
        """Whatever lives in a namespace, with its collection."""
        for collection, held in list(self._collections.items()):
            for key in [key for key in held.objects if key[0] == namespace]:
                yield collection, key

    def find(self, uid: str) -> Place | None:
        """Where the object with this uid is."""
        return self._ownership.place(uid)

    def dependents(self, uid: str) -> Iterator[tuple[str, Stored]]:
        """The objects that name an owner, with their collections, oldest first."""
        for collection, key in self._ownership.dependents(uid):
            stored = self.get(collection, key)
            if stored is not None:
                yield collection, stored

    def close(self) -> None:
        """Ends every watch, also those that begin later."""
        self._closed = True
        for collection in self._collections.values():
            collection.log.close()

    def _undone(self, collection: str, at: int) -> dict[Key, Stored]:
        if at > self._revision:
            raise ResourceVersionTooLarge(at, self._revision)
        held = self._of(collection)
        objects = dict(held.objects)
        for event in held.log.newest_first(at):
            if event.previous is None:
                del objects[key_of(event.stored.obj)]
            else:
                objects[key_of(event.previous.obj)] = event.previous
        return objects

    def _record(self, collection: str, change: Change, stored: Stored, previous: Stored | None) -> None:
        self._revision = stored.revision
        place = collection, key_of(stored.obj)
        if change is Change.DELETED:
            self._ownership.remove(place, stored.obj)
        else:
            self._ownership.put(place, stored.obj, previous.obj if previous else None)
        event = Event(change, stored, previous)
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
