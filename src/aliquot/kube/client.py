"""A thin asynchronous Kubernetes client: aiohttp for the wire, msgspec for what we read of it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec

from aliquot.kube import errors
from aliquot.kube.access import Access
from aliquot.kube.plugin import Credential
from aliquot.kube.resources import PODS, Kind, Resource
from aliquot.model import Object

_Read = TypeVar("_Read")

_PAGE = 500
_FIRST_REFUSAL = 400
_UNAUTHORIZED = 401
_WATCH_SECONDS = 300
_SILENCE_SECONDS = _WATCH_SECONDS + 30
_KEEP_ALIVE = {
    socket.TCP_KEEPIDLE: 15,
    socket.TCP_KEEPINTVL: 5,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 30_000,
}
_LONGEST_WATCH_LINE = 8 * 2**20


class _PageMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


class _Event(msgspec.Struct):
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
    """Raises only errors of aliquot.kube.errors. Close it, or use it as a context manager."""

    def __init__(self, access: Access, *, timeout: float = 10.0) -> None:
        self._access = access
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, 5.0))
        self._session = self._new_session()
        self._former: aiohttp.ClientSession | None = None
        self._certificate = b""

    def _new_session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self._access.tls or True, limit=0, socket_factory=_watched_socket)
        return aiohttp.ClientSession(base_url=self._access.server + "/", connector=connector)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()
        if self._former is not None:
            await self._former.close()
        if self._access.plugin is not None:
            await self._access.plugin.close()

    # -- reading

    async def get(
        self, resource: Resource[Kind], name: str, namespace: str = "", *, timeout: float | None = None
    ) -> Kind:
        """A quorum read: no resourceVersion is given, so the answer is never from a stale cache."""
        limit = None if timeout is None else aiohttp.ClientTimeout(total=timeout)
        return _decode(await self._call("GET", resource.path(namespace, name), timeout=limit), resource.type)

    async def list(
        self, resource: Resource[Kind], *, namespace: str = "", selector: Mapping[str, str] | None = None
    ) -> Listing[Kind]:
        """All objects, page by page, and the resourceVersion from which a watch goes on."""
        # msgspec makes a decoder of a generic that is filled in only here, which the type checker cannot follow
        page_of = _Page[resource.type]  # type: ignore[name-defined]
        items: list[Kind] = []
        token = ""
        while True:
            query = {**(selector or {}), "limit": str(_PAGE)} | ({"continue": token} if token else {})
            page = _decode(await self._call("GET", resource.path(namespace), query=query), page_of)
            items += page.items
            token = page.metadata.continue_
            if not token:
                return Listing(items, page.metadata.resource_version)

    async def watch(
        self,
        resource: Resource[Kind],
        resource_version: str,
        *,
        namespace: str = "",
        selector: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Change[Kind]]:
        """Changes since a resourceVersion, until the server ends the stream. Raises Gone when it is too old."""
        query = {
            **(selector or {}),
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=_SILENCE_SECONDS)
        async with self._answer("GET", resource.path(namespace), query=query, timeout=timeout) as response:
            async for line in _lines(response):
                event = _decode(line, _Event)
                if event.type == "ERROR":
                    status = _decode(event.object, _Status)
                    raise errors.answered(status.code, status.reason, status.message)
                yield _change(event, resource.type)

    # -- writing

    async def create(self, resource: Resource[Kind], body: Mapping[str, Any], namespace: str = "") -> Kind:
        return _decode(await self._call("POST", resource.path(namespace), body=body), resource.type)

    async def patch(
        self,
        resource: Resource[Kind],
        name: str,
        body: Mapping[str, Any],
        *,
        namespace: str = "",
        part: str = "",
        merge_lists: bool = False,
    ) -> None:
        """A JSON merge patch of an object, or of its `part` such as `status`.

        With `merge_lists` a strategic merge patch, which merges lists such as conditions by their key.
        """
        content = f"application/{'strategic-' if merge_lists else ''}merge-patch+json"
        await self._call("PATCH", resource.path(namespace, name, part), body=body, content=content)

    async def delete(self, resource: Resource[Kind], name: str, namespace: str = "", grace: int | None = None) -> None:
        query = {} if grace is None else {"gracePeriodSeconds": str(grace)}
        await self._call("DELETE", resource.path(namespace, name), query=query)

    async def bind(self, binding: Mapping[str, Any], *, timeout: float) -> None:
        """POST a Binding. After ApiError and NotSent it was not made; after anything else it may have been."""
        metadata = binding["metadata"]
        path = PODS.path(metadata["namespace"], metadata["name"], "binding")
        await self._call("POST", path, body=binding, timeout=aiohttp.ClientTimeout(total=timeout))

    # -- the wire

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content: str = "application/json",
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> bytes:
        data = None if body is None else msgspec.json.encode(body)
        async with self._answer(method, path, query=query, data=data, content=content, timeout=timeout) as response:
            return await response.read()

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        data: bytes | None = None,
        content: str = "application/json",
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The one place where foreign errors become ours."""
        headers = {"Accept": "application/json", "Content-Type": content}
        limit = timeout or self._timeout
        credential = await self._credential(limit)
        try:
            async with AsyncExitStack() as stack:

                async def send() -> aiohttp.ClientResponse:
                    return await stack.enter_async_context(
                        self._session.request(
                            method,
                            path,
                            params=query,
                            data=data,
                            headers={**headers, **self._identity(credential)},
                            timeout=limit,
                            server_hostname=self._access.server_name,
                        )
                    )

                response = await send()
                if response.status == _UNAUTHORIZED and credential is not None and self._access.plugin is not None:
                    response.release()
                    self._access.plugin.forget(credential)
                    credential = await self._credential(limit)
                    response = await send()
                if response.status >= _FIRST_REFUSAL:
                    raise await _refusal(response)
                yield response
        except aiohttp.ClientConnectorError as error:
            why = error.os_error.strerror or str(error)
            raise errors.NotSent(f"the API server at {self._access.server} cannot be reached: {why}") from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            text = str(error) or type(error).__name__
            raise errors.NoAnswer(f"{method} {path} got no answer from the API server: {text}") from error

    async def _credential(self, limit: aiohttp.ClientTimeout) -> Credential | None:
        """What the plug-in gives, its certificate in use."""
        if self._access.plugin is None:
            return None
        try:
            async with asyncio.timeout(limit.total):
                credential = await self._access.plugin.credential()
        except TimeoutError as error:
            raise errors.NotSent("the kubeconfig's exec plug-in is still running") from error
        if credential.certificate and credential.certificate != self._certificate:
            await self._change_certificate(credential)
        return credential

    async def _change_certificate(self, credential: Credential) -> None:
        """A connection keeps the certificate that it began with, so new ones are made; what runs on the old ones may
        end there, until the certificate changes once more."""
        try:
            self._access.present(credential)
        except (OSError, ValueError) as error:
            raise errors.NotSent(f"the exec plug-in's certificate cannot be used: {error}") from error
        self._certificate = credential.certificate
        ended, self._former, self._session = self._former, self._session, self._new_session()
        if ended is not None:
            await ended.close()

    def _identity(self, credential: Credential | None) -> dict[str, str]:
        try:
            return self._access.headers(credential)
        except (OSError, UnicodeDecodeError) as error:
            raise errors.NotSent(f"the token cannot be read: {error}") from error


def _watched_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A connection whose peer has vanished without a word fails after half a minute, not when a watch would have ended.

    A watch may be silent for minutes, so only the kernel can tell silence from absence.
    """
    made = socket.socket(family=address[0], type=address[1], proto=address[2])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def _decode(body: bytes | msgspec.Raw, kind: type[_Read]) -> _Read:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.Unreadable(f"the API server sent what is no {kind}: {error}") from error


async def _refusal(response: aiohttp.ClientResponse) -> errors.KubeError:
    body = await response.read()
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = _Status(message=body[:200].decode(errors="replace"))
    return errors.answered(response.status, status.reason or response.reason or "", status.message)


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The lines of a stream, however long: aiohttp's own reader gives up at 128 KiB."""
    pieces: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        *complete, rest = chunk.split(b"\n")
        for piece in complete:
            yield b"".join((*pieces, piece))
            pieces, size = [], 0
        if rest:
            pieces.append(rest)
            size += len(rest)
        if size > _LONGEST_WATCH_LINE:
            raise errors.NoAnswer("the API server sent a watch event without end")


def _change(event: _Event, kind: type[Kind]) -> Change[Kind]:
    if event.type == "BOOKMARK":
        bookmark = _decode(event.object, Object)
        return Change(event.type, None, bookmark.metadata.resource_version)
    changed = _decode(event.object, kind)
    return Change(event.type, changed, changed.metadata.resource_version)
