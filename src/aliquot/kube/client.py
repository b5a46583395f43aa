"""A thin asynchronous Kubernetes client: aiohttp for the wire, msgspec for what we read of it."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic

import msgspec

from aliquot.clock import Clock, SystemClock
from aliquot.kube.access import Access
from aliquot.kube.errors import ApiError, Gone, Unreadable
from aliquot.kube.resources import PODS, Kind, Resource
from aliquot.kube.wire import Wire, decode, failure
from aliquot.model import Object

_PAGE = 500
_WATCH_SECONDS = 120
_OBJECTS = ("ADDED", "MODIFIED", "DELETED")
_SILENCE_SECONDS = _WATCH_SECONDS + 30
"""Bookmarks come each minute, and a server without them has ended the watch by then."""


class _PageMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _Event(msgspec.Struct, Generic[Kind]):
    type: str
    object: Kind


class _Signal(msgspec.Struct):
    """An event that carries no object of the watched kind."""

    type: str
    object: msgspec.Raw


class _Page(msgspec.Struct, Generic[Kind]):
    items: list[Kind]
    metadata: _PageMetadata


@dataclass(frozen=True)
class Listing(Generic[Kind]):
    items: list[Kind]
    resource_version: str


@dataclass(frozen=True)
class Change(Generic[Kind]):
    """One event of a watch; a bookmark has no object."""

    type: str
    object: Kind | None
    resource_version: str


class Client:
    """Raises only errors of aliquot.kube.errors. Close it, or use it as a context manager.

    `silence` is after how many seconds without a word a watch counts as dead.
    """

    def __init__(
        self,
        access: Access,
        *,
        timeout: float = 10.0,
        silence: float = _SILENCE_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._wire = Wire(access, timeout, clock or SystemClock())
        self._silence = silence

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._wire.close()

    async def reach(self) -> None:
        """Ask something small, to learn whether the server answers at all. Raises NotSent or NoAnswer."""
        try:
            await self._wire.call("GET", "version")
        except ApiError:
            return  # a refusal is an answer

    # -- reading

    async def get(
        self, resource: Resource[Kind], name: str, namespace: str = "", *, timeout: float | None = None
    ) -> Kind:
        """A quorum read: no resourceVersion is given, so the answer is never from a stale cache."""
        return decode(await self._wire.read(resource.path(namespace, name), seconds=timeout), resource.type)

    async def list(
        self, resource: Resource[Kind], *, namespace: str = "", selector: Mapping[str, str] | None = None
    ) -> Listing[Kind]:
        """All objects, and the resourceVersion from which a watch goes on.

        On a busy server pages may grow too old before the last is read. They are read again, and then all at once.
        """
        for limit in (_PAGE, _PAGE, None):
            items: list[Kind] = []
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
        resource: Resource[Kind],
        *,
        namespace: str = "",
        selector: Mapping[str, str] | None = None,
        limit: int | None = _PAGE,
    ) -> AsyncIterator[Listing[Kind]]:
        """All objects as they were when the first page was asked for, page by page. At least one page comes.

        Raises Gone in the middle when that moment is too long ago.
        """
        # msgspec makes a decoder of a generic that is filled in only here, which the type checker cannot follow
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
        resource: Resource[Kind],
        resource_version: str,
        *,
        namespace: str = "",
        selector: Mapping[str, str] | None = None,
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[Change[Kind]]:
        """Changes since a resourceVersion, until the server ends the stream; `opened` is called when it has begun one.
        Raises Gone when that is too old."""
        query = {
            **(selector or {}),
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        event_of = _Event[resource.type]  # type: ignore[name-defined]
        async with aclosing(self._wire.lines(resource.path(namespace), query, silence=self._silence)) as lines:
            async for line in lines:
                if line:
                    yield _change(line, event_of)
                else:
                    opened()

    # -- writing

    async def create(self, resource: Resource[Kind], body: Mapping[str, Any], namespace: str = "") -> Kind:
        return decode(await self._wire.call("POST", resource.path(namespace), body=body), resource.type)

    async def patch(
        self,
        resource: Resource[Kind],
        name: str,
        body: Mapping[str, Any],
        *,
        namespace: str = "",
        part: str = "",
        merge_lists: bool = False,
        uid: str = "",
        version: str = "",
    ) -> Kind:
        """A JSON merge patch of an object, or of its `part` such as `status`.

        With `merge_lists` a strategic merge patch, which merges lists such as conditions by their key. Only the object
        with this `uid` takes it (Invalid otherwise), and only in this `version` (Conflict otherwise).
        """
        content = f"application/{'strategic-' if merge_lists else ''}merge-patch+json"
        path = resource.path(namespace, name, part)
        answer = await self._wire.call("PATCH", path, body=_only_for(body, uid, version), content=content)
        return decode(answer, resource.type)

    async def apply(
        self,
        resource: Resource[Kind],
        body: Mapping[str, Any],
        *,
        manager: str,
        namespace: str = "",
        part: str = "",
        force: bool = False,
        uid: str = "",
        version: str = "",
    ) -> Kind:
        """Server-side apply of a whole wish, with apiVersion, kind and name: makes the object if there is none.

        Raises Conflict where another manager owns a field, unless with `force`.
        """
        path = resource.path(namespace, str(body["metadata"]["name"]), part)
        query = {"fieldManager": manager} | ({"force": "true"} if force else {})
        content = "application/apply-patch+yaml"
        sent = _only_for(body, uid, version)
        return decode(await self._wire.call("PATCH", path, query=query, body=sent, content=content), resource.type)

    async def delete(
        self,
        resource: Resource[Kind],
        name: str,
        namespace: str = "",
        grace: int | None = None,
        *,
        uid: str = "",
        version: str = "",
    ) -> None:
        """Only the object with this `uid`, and only in this `version`: Conflict otherwise."""
        await self._wire.call("DELETE", resource.path(namespace, name), body=_deletion(grace, uid, version))

    async def evict(self, name: str, namespace: str, *, grace: int | None = None, uid: str = "") -> None:
        """Delete a pod if its disruption budgets allow it; TooManyRequests if they do not."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _deletion(grace, uid, ""),
        }
        await self._wire.call("POST", PODS.path(namespace, name, "eviction"), body=eviction)

    async def bind(self, binding: Mapping[str, Any], *, timeout: float, dry_run: bool = False) -> None:
        """POST a Binding. After ApiError and NotSent it was not made; after anything else it may have been."""
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


def _change(line: bytes, event_of: type[_Event[Kind]]) -> Change[Kind]:
    """Read in one go, for nearly every event is about an object; raises the error that an ERROR tells of."""
    try:
        event = decode(line, event_of)
        if event.type in _OBJECTS:
            return Change(event.type, event.object, event.object.metadata.resource_version)
    except Unreadable:
        if decode(line, _Signal).type in _OBJECTS:
            raise
    signal = decode(line, _Signal)
    if signal.type == "BOOKMARK":  # an object with nothing but a version: of a pod, containers are null there
        return Change(signal.type, None, decode(signal.object, Object).metadata.resource_version)
    raise failure(signal.object)
