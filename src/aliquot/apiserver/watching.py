"""Watches: the initial objects if requested, then events, as lines of JSON."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from aliquot.apiserver.answers import Presenter, encode, frame
from aliquot.apiserver.eventlog import Cursor, EventType, Stored, StoreEvent, encoded
from aliquot.apiserver.lists import flag, number
from aliquot.apiserver.resources import ServedResource
from aliquot.apiserver.selectors import Predicate
from aliquot.apiserver.statuses import StatusError
from aliquot.apiserver.store import Store

BOOKMARK_SECONDS = 60.0

_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


@dataclass(frozen=True, slots=True)
class WatchOptions:
    since: int | None
    """The revision to start from; None starts with the current objects."""
    bookmarks: bool
    initial_events: bool
    seconds: int | None


def options_of(query: Mapping[str, str]) -> WatchOptions:
    """Raises BadRequest."""
    revision = number(query, "resourceVersion")
    initial = flag(query, "sendInitialEvents")
    return WatchOptions(
        since=revision if revision and not initial else None,
        bookmarks=flag(query, "allowWatchBookmarks"),
        initial_events=initial,
        seconds=number(query, "timeoutSeconds") or None,
    )


def seen_through(chosen: Predicate, event: StoreEvent) -> tuple[EventType, Stored] | None:
    """With a selector, an object is ADDED when it starts to match and DELETED when it stops."""
    previous = event.previous
    matched = previous is not None and chosen(previous.obj)
    if event.change is not EventType.DELETED and chosen(event.stored.obj):
        return (EventType.MODIFIED if matched else EventType.ADDED), event.stored
    if previous is None or not matched:
        return None
    if event.change is EventType.DELETED:
        return EventType.DELETED, event.stored
    return EventType.DELETED, encoded(previous.obj, event.revision)


class Watch:
    """A watch. An error during the watch goes into the stream, as on the real server."""

    def __init__(
        self, store: Store, resource: ServedResource, chosen: Predicate, presenter: Presenter, options: WatchOptions
    ) -> None:
        self._store = store
        self._resource = resource
        self._chosen = chosen
        self._presenter = presenter
        self._options = options

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Lines until the timeout, the server's end, or a 410 frame for a watcher that fell behind."""
        loop = asyncio.get_running_loop()
        end = loop.time() + (float("inf") if self._options.seconds is None else self._options.seconds)
        try:
            cursor, lines = self._start()
            yield lines  # even without objects: the first write sends the headers
            while not cursor.ended and (left := end - loop.time()) > 0:
                yield self._lines(await cursor.next(min(left, BOOKMARK_SECONDS)))
        except StatusError as error:
            yield frame("ERROR", encode(error.status()))

    def _start(self) -> tuple[Cursor, bytes]:
        since, collection = self._options.since, self._resource.collection
        if since is not None:
            return self._store.watch(collection, since), b""
        lines = [
            frame(EventType.ADDED, self._presenter.one(item))
            for item in self._store.snapshot(collection)
            if self._chosen(item.obj)
        ]
        if self._options.initial_events and self._options.bookmarks:
            lines.append(self._bookmark(_INITIAL_EVENTS_END))
        return self._store.watch(collection, self._store.revision), b"".join(lines)

    def _lines(self, events: list[StoreEvent]) -> bytes:
        if not events:
            return self._bookmark({}) if self._options.bookmarks else b""
        seen = (seen_through(self._chosen, event) for event in events)
        return b"".join(frame(change, self._presenter.one(item)) for change, item in filter(None, seen))

    def _bookmark(self, annotations: dict[str, str]) -> bytes:
        """A bookmark. It is sent only when no events are left to read."""
        return frame("BOOKMARK", self._presenter.bookmark(self._store.revision, annotations))
