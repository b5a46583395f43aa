"""A thin asynchronous Kubernetes client on httptools and msgspec."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic

import msgspec

from aliquot.clock import Clock, SystemClock
from aliquot.kube.access import Access
from aliquot.kube.errors import ApiError, Gone, Unreadable
from aliquot.kube.resources import PODS, ApiResource, ObjectT
from aliquot.kube.transport import Transport, decode, failure
from aliquot.model import Object

_PAGE = 500
_WATCH_SECONDS = 120
_HTTP_DATE = "%a, %d %b %Y %H:%M:%S GMT"
_OBJECTS = ("ADDED", "MODIFIED", "DELETED")
_SILENCE_SECONDS = _WATCH_SECONDS + 30
"""A server sends bookmarks every minute. One that sends none has ended the watch by then."""


class _PageMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _ObjectEvent(msgspec.Struct, Generic[ObjectT]):
    type: str
    object: ObjectT


class _RawEvent(msgspec.Struct):
    """An event that carries no object of the watched kind."""

    type: str
    object: msgspec.Raw


class _Page(msgspec.Struct, Generic[ObjectT]):
    items: list[ObjectT]
    metadata: _PageMetadata


@dataclass(frozen=True)
class Listing(Generic[ObjectT]):
    items: list[ObjectT]
    resource_version: str


@dataclass(frozen=True)
class WatchEvent(Generic[ObjectT]):
    """An event of a watch. A bookmark has no object."""

    type: str
    object: ObjectT | None
    resource_version: str


class Client:
    """A client of one API server. Raises only errors of aliquot.kube.errors. Close it, or use it as a context manager.

    A watch counts as dead after `silence` seconds without data.
    """

    def __init__(
        self,
        access: Access,
        *,
        timeout: float = 10.0,
        silence: float = _SILENCE_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._wire = Transport(access, timeout, clock or SystemClock())
        self._silence = silence

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._wire.close()

    async def reach(self) -> None:
        """Check that the server answers at all. Raises NotSent or NoAnswer."""
        try:
            await self._wire.call("GET", "version")
        except ApiError:
            return  # a refusal is an answer

    @property
    def server_time(self) -> float | None:
        """Seconds since the epoch by the server's clock, at its last answer; None if it has not told."""
        try:
            return datetime.strptime(self._wire.date, _HTTP_DATE).replace(tzinfo=UTC).timestamp()
        except ValueError:
            return None

    # -- reading

    async def get(
        self, resource: ApiResource[ObjectT], name: str, namespace: str = "", *, timeout: float | None = None
    ) -> ObjectT:
        """A quorum read: without a resourceVersion the server never answers from a stale cache."""
        return decode(await self._wire.read(resource.path(namespace, name), seconds=timeout), resource.type)

    async def list(
        self, resource: ApiResource[ObjectT], *, namespace: str = "", selector: Mapping[str, str] | None = None
    ) -> Listing[ObjectT]:
        """All objects, and the resourceVersion to start a watch from.

        On a busy server the pages may expire before the last one is read. Then they are read again, the last time in
        one.
        """
        for limit in (_PAGE, _PAGE, None):
            items: list[ObjectT] = []
            try:
                async for page in self.pages(resource, namespace=namespace, selector=selector, limit=limit):
                    items += page.items
            except Gone:
                if limit is None:
                    raise
            else:
                break
        return Listing(items, page.resource_version)

    async def pages(
        self,
        resource: ApiResource[ObjectT],
        *,
        namespace: str = "",
        selector: Mapping[str, str] | None = None,
        limit: int | None = _PAGE,
    ) -> AsyncIterator[Listing[ObjectT]]:
        """All objects page by page, as they were at the first page. Yields at least one page.

        Raises Gone midway if that state has expired.
        """
        # the type checker cannot follow a generic that gets its parameter at runtime
        page_of = _Page[resource.type]  # type: ignore[name-defined]
        query = {**(selector or {})} | ({"limit": str(limit)} if limit else {})
        while True:
            page = decode(await self._wire.read(resource.path(namespace), query), page_of)
            yield Listing(page.items, page.metadata.resource_version)
            if not page.metadata.continue_:
                return
            query["continue"] = page.metadata.continue_

    async def watch(
        self,
        resource: ApiResource[ObjectT],
        resource_version: str,
        *,
        namespace: str = "",
        selector: Mapping[str, str] | None = None,
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[WatchEvent[ObjectT]]:
        """Events since a resourceVersion, until the server ends the stream. Calls `opened` once the stream has begun.

        Raises Gone if the resourceVersion is too old.
        """
        query = {
            **(selector or {}),
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        event_of = _ObjectEvent[resource.type]  # type: ignore[name-defined]
        async with aclosing(self._wire.lines(resource.path(namespace), query, silence=self._silence)) as lines:
            async for line in lines:
                if line:
                    yield _watch_event(line, event_of)
                else:
                    opened()

    # -- writing

    async def create(self, resource: ApiResource[ObjectT], body: Mapping[str, Any], namespace: str = "") -> ObjectT:
        return decode(await self._wire.call("POST", resource.path(namespace), body=body), resource.type)

    async def patch(
        self,
        resource: ApiResource[ObjectT],
        name: str,
        body: Mapping[str, Any],
        *,
        namespace: str = "",
        part: str = "",
        merge_lists: bool = False,
        uid: str = "",
        version: str = "",
    ) -> ObjectT:
        """A JSON merge patch of an object, or of its `part` such as `status`.

        With `merge_lists` it is a strategic merge patch, which merges lists such as conditions by key. It applies only
        to the object with this `uid` (else Invalid) and in this `version` (else Conflict).
        """
        content = f"application/{'strategic-' if merge_lists else ''}merge-patch+json"
        path = resource.path(namespace, name, part)
        answer = await self._wire.call("PATCH", path, body=_only_for(body, uid, version), content=content)
        return decode(answer, resource.type)

    async def delete(
        self,
        resource: ApiResource[ObjectT],
        name: str,
        namespace: str = "",
        grace: int | None = None,
        *,
        uid: str = "",
        version: str = "",
    ) -> None:
        """Delete an object. Raises Conflict if its UID is not `uid`, or its version not `version`."""
        await self._wire.call("DELETE", resource.path(namespace, name), body=_deletion(grace, uid, version))

    async def evict(self, name: str, namespace: str, *, grace: int | None = None, uid: str = "") -> None:
        """Delete a pod if its disruption budgets allow it. Raises TooManyRequests if they do not."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _deletion(grace, uid, ""),
        }
        await self._wire.call("POST", PODS.path(namespace, name, "eviction"), body=eviction)

    async def bind(self, binding: Mapping[str, Any], *, timeout: float, dry_run: bool = False) -> None:
        """POST a Binding. After ApiError and NotSent the pod is not bound; after any other error it may be."""
        metadata = binding["metadata"]
        path = PODS.path(metadata["namespace"], metadata["name"], "binding")
        query = {"dryRun": "All"} if dry_run else None
        await self._wire.call("POST", path, query=query, body=binding, seconds=timeout)


def _only_for(body: Mapping[str, Any], uid: str, version: str) -> Mapping[str, Any]:
    wanted = {name: value for name, value in (("uid", uid), ("resourceVersion", version)) if value}
    return {**body, "metadata": {**(body.get("metadata") or {}), **wanted}} if wanted else body


def _deletion(grace: int | None, uid: str, version: str) -> dict[str, Any]:
    conditions = {name: value for name, value in (("uid", uid), ("resourceVersion", version)) if value}
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    return options | ({"preconditions": conditions} if conditions else {})


def _watch_event(line: bytes, event_of: type[_ObjectEvent[ObjectT]]) -> WatchEvent[ObjectT]:
    """Decode in one pass, since nearly every event has an object. Raises the error that an ERROR event carries."""
    try:
        event = decode(line, event_of)
        if event.type in _OBJECTS:
            return WatchEvent(event.type, event.object, event.object.metadata.resource_version)
    except Unreadable:
        if decode(line, _RawEvent).type in _OBJECTS:
            raise
    raw = decode(line, _RawEvent)
    if raw.type == "BOOKMARK":  # a bookmark's object has only a version; a pod's containers are null there
        return WatchEvent(raw.type, None, decode(raw.object, Object).metadata.resource_version)
    raise failure(raw.object)
