"""Watches: the initial objects if requested, then events, as lines of JSON."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass

from aliquot.apiserver.answers import Presenter, encode, frame
from aliquot.apiserver.eventlog import BATCH, Cursor, EventType, Stored, StoreEvent, encoded
from aliquot.apiserver.lists import Selection, flag, number
from aliquot.apiserver.resources import ServedResource
from aliquot.apiserver.statuses import StatusError
from aliquot.apiserver.store import Store

BOOKMARK_SECONDS = 60.0

_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


@dataclass(frozen=True, slots=True)
class WatchOptions:
    since: int | None
    """The revision to start from; None starts with the current objects."""
    at_least: int
    """The revision that the current objects must have reached."""
    bookmarks: bool
    initial_events: bool
    seconds: int | None


def options_of(query: Mapping[str, str]) -> WatchOptions:
    """Raises BadRequest."""
    revision = number(query, "resourceVersion")
    initial = flag(query, "sendInitialEvents")
    return WatchOptions(
        since=revision if revision and not initial else None,
        at_least=revision or 0,
        bookmarks=flag(query, "allowWatchBookmarks"),
        initial_events=initial,
        seconds=number(query, "timeoutSeconds") or None,
    )


def seen_through(chosen: Callable[[Stored], bool], event: StoreEvent) -> tuple[EventType, Stored] | None:
    """With a selector, an object is ADDED when it starts to match and DELETED when it stops."""
    previous = event.previous
    matched = previous is not None and chosen(previous)
    if event.change is not EventType.DELETED and chosen(event.stored):
        return (EventType.MODIFIED if matched else EventType.ADDED), event.stored
    if previous is None or not matched:
        return None
    if event.change is EventType.DELETED:
        return EventType.DELETED, event.stored
    return EventType.DELETED, encoded(previous.obj, event.revision)


class Watch:
    """A watch. An error during the watch goes into the stream, as on the real server."""

    def __init__(
        self,
        store: Store,
        resource: ServedResource,
        chosen: Selection,
        presenter: Presenter,
        options: WatchOptions,
        bookmark_seconds: float = BOOKMARK_SECONDS,
    ) -> None:
        self._store = store
        self._resource = resource
        self._chosen = chosen
        self._presenter = presenter
        self._options = options
        self._bookmark_seconds = bookmark_seconds

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Lines until the timeout, the server's end, or a 410 frame for a watcher that fell behind."""
        loop = asyncio.get_running_loop()
        end = loop.time() + (float("inf") if self._options.seconds is None else self._options.seconds)
        try:
            revision = self._store.revision
            cursor, items = self._start()
            yield b""  # even without objects: the first write sends the headers
            for lines in self._initial(items, revision):
                yield lines
                await asyncio.sleep(0)  # others have their turn
            bookmark_at = loop.time() + self._bookmark_seconds
            while not cursor.ended and (left := end - loop.time()) > 0:
                events = await cursor.next(min(left, max(0.0, bookmark_at - loop.time())))
                lines, is_due = self._lines(events), not events or loop.time() >= bookmark_at
                if lines or is_due:
                    bookmark_at = loop.time() + self._bookmark_seconds
                yield lines or (self._bookmark(events) if is_due else b"")
        except StatusError as error:
            yield frame("ERROR", encode(error.status()))

    def _start(self) -> tuple[Cursor, list[Stored]]:
        """A cursor, and the objects to begin with."""
        options, collection = self._options, self._resource.collection
        if options.since is not None:
            return self._store.watch(collection, options.since), []
        if options.at_least:
            self._store.require(options.at_least)
        return self._store.watch(collection, self._store.revision), self._store.snapshot(collection)

    def _initial(self, items: list[Stored], revision: int) -> Iterator[bytes]:
        """In pieces: a slow reader holds one of them in memory, and not all."""
        for begin in range(0, len(items), BATCH):
            chosen = (item for item in items[begin : begin + BATCH] if self._chosen(item))
            yield b"".join(self._presenter.new_frame(EventType.ADDED, item) for item in chosen)
        if self._options.initial_events and self._options.bookmarks:
            yield frame("BOOKMARK", self._presenter.bookmark(revision, _INITIAL_EVENTS_END))

    def _lines(self, events: list[StoreEvent]) -> bytes:
        seen = (seen_through(self._chosen, event) for event in events)
        return b"".join(self._presenter.frame(change, item) for change, item in filter(None, seen))

    def _bookmark(self, events: list[StoreEvent]) -> bytes:
        """Where a watcher that has seen none of these events can go on. On a busy cluster, its own last event may be
        too old for that."""
        if not self._options.bookmarks:
            return b""
        revision = events[-1].revision if events else self._store.revision
        return frame("BOOKMARK", self._presenter.bookmark(revision, {}))
