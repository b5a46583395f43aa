"""A map by pod UID, bounded in total and per namespace: what the server keeps about pods between two calls."""

from collections import OrderedDict
from collections.abc import Iterator, KeysView
from typing import Generic, TypeVar

Kept = TypeVar("Kept")


class BoundedMap(Generic[Kept]):
    """Values by pod UID, newest last. Above `most` in total, or `of_namespace` in a namespace, the oldest is dropped: a
    single namespace cannot push out the others."""

    def __init__(self, most: int, of_namespace: int) -> None:
        self._most = most
        self._of_namespace = of_namespace
        self._kept: OrderedDict[str, tuple[str, Kept]] = OrderedDict()
        self._uids_in: dict[str, OrderedDict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Kept]:
        return (kept for _, kept in self._kept.values())

    @property
    def uids(self) -> KeysView[str]:
        return self._kept.keys()

    def get(self, uid: str) -> Kept | None:
        found = self._kept.get(uid)
        return found[1] if found is not None else None

    def put(self, uid: str, namespace: str, kept: Kept) -> None:
        self.forget(uid)
        self._kept[uid] = namespace, kept
        neighbours = self._uids_in.setdefault(namespace, OrderedDict())
        neighbours[uid] = None
        if len(neighbours) > self._of_namespace:
            self.forget(next(iter(neighbours)))
        if len(self._kept) > self._most:
            self.forget(next(iter(self._kept)))

    def forget(self, uid: str) -> Kept | None:
        """Drop and return the value of a pod; None if there was none."""
        found = self._kept.pop(uid, None)
        if found is None:
            return None
        namespace, kept = found
        neighbours = self._uids_in[namespace]
        del neighbours[uid]
        if not neighbours:
            del self._uids_in[namespace]
        return kept
