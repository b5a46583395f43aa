"""HTTP to an API server: credentials, timeouts, and the translation of foreign errors into ours."""

import asyncio
import random
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import aiohttp
import msgspec

from aliquot import counts
from aliquot.clock import Clock
from aliquot.kube import errors
from aliquot.kube.access import Access
from aliquot.kube.exec_plugin import Credential
from aliquot.kube.stream import Silence, lines
from aliquot.plain import why

_Read = TypeVar("_Read")

JSON = "application/json"

_FIRST_REFUSAL = 400
_UNAUTHORIZED = 401
_MAX_TRIES = 5
_SPREAD = 0.25
"""Retries are spread over this share of the pause, so that clients do not come back all at once."""
_KEEP_ALIVE = {
    socket.TCP_KEEPIDLE: 15,
    socket.TCP_KEEPINTVL: 5,
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 30_000,
}
_FIRST_WORD_SECONDS = 30.0
"""How long the headers of a watch may take. A server sends them at once."""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int = 0


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class Transport:
    """Raises only errors of aliquot.kube.errors."""

    def __init__(self, access: Access, timeout: float, clock: Clock) -> None:
        self._access = access
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, 5.0))
        self._clock = clock
        self._session = self._new_session()
        self._former: aiohttp.ClientSession | None = None
        self._certificate = b""

    async def close(self) -> None:
        await self._session.close()
        if self._former is not None:
            await self._former.close()
        if self._access.plugin is not None:
            await self._access.plugin.close()

    async def read(self, path: str, query: Mapping[str, str] | None = None, *, seconds: float | None = None) -> bytes:
        """GET. Retries while a busy server says when to come back and the timeout of the call allows it."""
        end = self._clock.monotonic() + (seconds or self._timeout.total or 0.0)
        for attempt in range(1, _MAX_TRIES + 1):
            try:
                return await self.call("GET", path, query=query, seconds=seconds)
            except errors.KubeError as error:
                if error.retry_after is None or attempt == _MAX_TRIES:
                    raise
                pause = error.retry_after * random.uniform(1.0, 1.0 + _SPREAD)
                if self._clock.monotonic() + pause >= end:
                    raise
            await self._clock.sleep(pause)
        raise AssertionError("the last try answers or raises")

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content: str = JSON,
        seconds: float | None = None,
    ) -> bytes:
        """One request and its whole answer. Never sends twice, since a write may have been made."""
        data = None if body is None else msgspec.json.encode(body)
        limit = self._timeout if seconds is None else aiohttp.ClientTimeout(total=seconds)
        async with self._answer(method, path, query, data, content, limit) as response:
            return await response.read()

    async def lines(self, path: str, query: Mapping[str, str], *, silence: float) -> AsyncGenerator[bytes, None]:
        """The lines of an endless GET, until the server ends it or sends nothing for `silence` seconds.

        The first line is empty and says that the server has answered.
        """
        limit = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(min(silence, _FIRST_WORD_SECONDS)):
                    answer = self._answer("GET", path, query, None, JSON, limit)
                    response = await stack.enter_async_context(answer)
            except TimeoutError as error:
                raise errors.NoAnswer(f"GET {path} got no answer from the API server: TimeoutError") from error
            yield b""
            async for line in lines(response, stack.enter_context(Silence(response, silence))):
                yield line

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        data: bytes | None,
        content: str,
        limit: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The only place that translates foreign errors into ours."""
        credential = await self._credential(limit)
        answered = False
        try:
            async with AsyncExitStack() as stack:

                async def send() -> aiohttp.ClientResponse:
                    request = self._session.request(
                        method,
                        path,
                        params=query,
                        data=data,
                        headers={"Accept": JSON, "Content-Type": content, **self._identity(credential)},
                        timeout=limit,
                        server_hostname=self._access.server_name,
                    )
                    return await stack.enter_async_context(request)

                response = await send()
                if response.status == _UNAUTHORIZED and credential is not None and self._access.plugin is not None:
                    response.release()
                    self._access.plugin.forget(credential)
                    credential = await self._credential(limit)
                    response = await send()
                answered = True
                counts.API_REQUESTS[method, str(response.status)] += 1
                if response.status >= _FIRST_REFUSAL:
                    raise await _refusal(response)
                yield response
        except aiohttp.ClientConnectorError as error:
            counts.API_REQUESTS[method, "not sent"] += 1
            raise errors.NotSent(
                f"the API server at {self._access.server} cannot be reached: {why(error.os_error)}"
            ) from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            text = str(error) or type(error).__name__
            if not answered:
                counts.API_REQUESTS[method, "no answer"] += 1
            raise errors.NoAnswer(f"{method} {path} got no answer from the API server: {text}") from error

    async def _credential(self, limit: aiohttp.ClientTimeout) -> Credential | None:
        """The plugin's credential, with its certificate in use."""
        if self._access.plugin is None:
            return None
        try:
            async with asyncio.timeout(limit.total):
                credential = await self._access.plugin.credential()
        except TimeoutError as error:
            raise errors.NotSent("the kubeconfig's exec plugin is still running") from error
        if credential.certificate and credential.certificate != self._certificate:
            await self._change_certificate(credential)
        return credential

    async def _change_certificate(self, credential: Credential) -> None:
        """Open new connections with a new certificate. Requests on old connections may finish, until the certificate
        changes again."""
        try:
            self._access.present(credential)
        except (OSError, ValueError) as error:
            raise errors.NotSent(f"the exec plugin's certificate cannot be used: {error}") from error
        self._certificate = credential.certificate
        ended, self._former, self._session = self._former, self._session, self._new_session()
        if ended is not None:
            await ended.close()

    def _new_session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self._access.tls or True, limit=0, socket_factory=_watched_socket)
        return aiohttp.ClientSession(base_url=self._access.server + "/", connector=connector)

    def _identity(self, credential: Credential | None) -> dict[str, str]:
        try:
            return self._access.headers(credential)
        except (OSError, UnicodeDecodeError) as error:
            raise errors.NotSent(f"the token cannot be read: {why(error)}") from error


def decode(body: bytes | msgspec.Raw, kind: type[_Read]) -> _Read:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.Unreadable(f"the API server's answer is not a {kind}: {error}") from error


def failure(body: msgspec.Raw) -> errors.KubeError:
    """The error for a Status in a stream."""
    status = decode(body, _Status)
    return errors.answered(status.code, status.reason, status.message, _told(status))


async def _refusal(response: aiohttp.ClientResponse) -> errors.KubeError:
    body = await response.read()
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = _Status(message=body[:200].decode(errors="replace"))
    header = response.headers.get("Retry-After", "")
    # the header may also be a date, but that would mean to trust the server's clock
    wait = float(header) if header.isascii() and header.isdigit() else _told(status)
    return errors.answered(response.status, status.reason or response.reason or "", status.message, wait)


def _told(status: _Status) -> float | None:
    return float(status.details.retry_after_seconds) if status.details and status.details.retry_after_seconds else None


def _watched_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that fails half a minute after its peer has vanished.

    A watch may be quiet for minutes, so only TCP keep-alive can tell a quiet peer from a dead one.
    """
    made = socket.socket(family=address[0], type=address[1], proto=address[2])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
