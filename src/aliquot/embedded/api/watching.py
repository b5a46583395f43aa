"""Watches: first what is there, where that is asked for, then what happens, as lines of JSON."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from aliquot.embedded.api.answers import Presenter, encode, frame
from aliquot.embedded.api.eventlog import Change, Cursor, Event, Stored, encoded
from aliquot.embedded.api.lists import flag, number
from aliquot.embedded.api.resources import Resource
from aliquot.embedded.api.selectors import Predicate
from aliquot.embedded.api.statuses import StatusError
from aliquot.embedded.api.store import Store

BOOKMARK_SECONDS = 60.0

_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


@dataclass(frozen=True, slots=True)
class WatchOptions:
    since: int | None
    """None starts with the current state."""
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


def seen_through(chosen: Predicate, event: Event) -> tuple[Change, Stored] | None:
    """To a watcher with a selector, an object appears when it begins to match and is deleted when it ceases to."""
    previous = event.previous
    matched = previous is not None and chosen(previous.obj)
    if event.change is not Change.DELETED and chosen(event.stored.obj):
        return (Change.MODIFIED if matched else Change.ADDED), event.stored
    if previous is None or not matched:
        return None
    if event.change is Change.DELETED:
        return Change.DELETED, event.stored
    return Change.DELETED, encoded(previous.obj, event.revision)


class Watch:
    """One watch. What cannot be served any more is told in the stream, as the real server does."""

    def __init__(
        self, store: Store, resource: Resource, chosen: Predicate, presenter: Presenter, options: WatchOptions
    ) -> None:
        self._store = store
        self._resource = resource
        self._chosen = chosen
        self._presenter = presenter
        self._options = options

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Lines until the client's time is over, the server ends, or the watcher has fallen behind (a 410 frame)."""
        loop = asyncio.get_running_loop()
        end = loop.time() + (float("inf") if self._options.seconds is None else self._options.seconds)
        try:
            cursor, lines = self._start()
            yield lines  # also where there are none: the first write sends the headers
            while not cursor.ended and (left := end - loop.time()) > 0:
                yield self._lines(await cursor.next(min(left, BOOKMARK_SECONDS)))
        except StatusError as error:
            yield frame("ERROR", encode(error.status()))

    def _start(self) -> tuple[Cursor, bytes]:
        since, collection = self._options.since, self._resource.collection
        if since is not None:
            return self._store.watch(collection, since), b""
        lines = [
            frame(Change.ADDED, self._presenter.one(item))
            for item in self._store.snapshot(collection)
            if self._chosen(item.obj)
        ]
        if self._options.initial_events and self._options.bookmarks:
            lines.append(self._bookmark(_INITIAL_EVENTS_END))
        return self._store.watch(collection, self._store.revision), b"".join(lines)

    def _lines(self, events: list[Event]) -> bytes:
        if not events:
            return self._bookmark({}) if self._options.bookmarks else b""
        seen = (seen_through(self._chosen, event) for event in events)
        return b"".join(frame(change, self._presenter.one(item)) for change, item in filter(None, seen))

    def _bookmark(self, annotations: dict[str, str]) -> bytes:
        """Sent only where nothing is left to read, so that everything up to the newest revision has been seen."""
        return frame("BOOKMARK", self._presenter.bookmark(self._store.revision, annotations))
