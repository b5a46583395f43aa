"""The embedded server's store: it also knows owners and dependents, and what a namespace contains."""

from collections.abc import Iterable, Iterator

from aliquot.apiserver.eventlog import EventType, Stored, StoreEvent
from aliquot.apiserver.objects import Key, key_of
from aliquot.apiserver.store import LOG_CAPACITY, Store
from aliquot.embedded.api.ownership import Ownership, Place


class OwningStore(Store):
    def __init__(self, log_capacity: int = LOG_CAPACITY) -> None:
        super().__init__(log_capacity)
        self._ownership = Ownership()
        self.on_change(self._note_owners)

    def namespaced_keys(self, namespace: str) -> Iterable[tuple[str, Key]]:
        """The collection and key of every object in a namespace."""
        for collection, held in list(self._collections.items()):
            for key in [key for key in held.objects if key[0] == namespace]:
                yield collection, key

    def find(self, uid: str) -> Place | None:
        """The collection and key of the object with this UID."""
        return self._ownership.place(uid)

    def dependents(self, uid: str) -> Iterator[tuple[str, Stored]]:
        """The dependents of an owner with their collections, oldest first."""
        for collection, key in self._ownership.dependents(uid):
            stored = self.get(collection, key)
            if stored is not None:
                yield collection, stored

    def _note_owners(self, collection: str, event: StoreEvent) -> None:
        place = collection, key_of(event.stored.obj)
        if event.change is EventType.DELETED:
            self._ownership.remove(place, event.stored.obj)
        else:
            self._ownership.put(place, event.stored.obj, event.previous.obj if event.previous else None)
