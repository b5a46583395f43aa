"""HTTP to an API server: credentials, timeouts, and the translation of foreign errors into ours."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import msgspec

from aliquot import counts
from aliquot.clock import Clock
from aliquot.kube import errors
from aliquot.kube.access import Access
from aliquot.kube.exec_plugin import Credential
from aliquot.kube.http import Answer, HttpClient
from aliquot.kube.stream import Silence, lines
from aliquot.model.bounds import LARGEST_REFUSAL
from aliquot.plain import why

_Read = TypeVar("_Read")

JSON = "application/json"

_FIRST_REFUSAL = 300
_UNAUTHORIZED = 401
_MAX_TRIES = 5
_SPREAD = 0.25
"""Retries are spread over this share of the pause, so that clients do not come back all at once."""
_FIRST_WORD_SECONDS = 30.0
"""How long the headers of a watch may take. A server sends them at once."""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int = 0


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""
    error: str = ""
    """The message of our own servers."""
    details: _Details | None = None


class Transport:
    """Raises only errors of aliquot.kube.errors."""

    def __init__(self, access: Access, timeout: float, clock: Clock) -> None:
        self._access = access
        self._timeout = timeout
        self._clock = clock
        self._http = self._new_client()
        self._former: HttpClient | None = None
        self._certificate = b""
        self.date = ""
        """The `Date` header of the last answer that had one."""

    async def close(self) -> None:
        await self._http.close()
        if self._former is not None:
            await self._former.close()
        if self._access.plugin is not None:
            await self._access.plugin.close()

    async def read(self, path: str, query: Mapping[str, str] | None = None, *, seconds: float | None = None) -> bytes:
        """GET. Retries while a busy server says when to come back and the timeout of the call allows it."""
        end = self._clock.monotonic() + (seconds or self._timeout)
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
        limit = self._timeout if seconds is None else seconds
        async with self._answer(method, path, query, data, content, limit) as answer:
            return await answer.read()

    async def lines(self, path: str, query: Mapping[str, str], *, silence: float) -> AsyncGenerator[bytes, None]:
        """The lines of an endless GET, until the server ends it or sends nothing for `silence` seconds.

        The first line is empty and says that the server has answered.
        """
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(min(silence, _FIRST_WORD_SECONDS)):
                    answer = await stack.enter_async_context(self._answer("GET", path, query, None, JSON, None))
            except TimeoutError as error:
                raise errors.NoAnswer(f"GET {path} got no answer from the API server: TimeoutError") from error
            yield b""
            async for line in lines(answer, stack.enter_context(Silence(answer, silence))):
                yield line

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        data: bytes | None,
        content: str,
        limit: float | None,
    ) -> AsyncIterator[Answer]:
        """Translates foreign errors into ours."""
        credential = await self._credential(limit)
        answered = False
        try:
            async with asyncio.timeout(limit), AsyncExitStack() as stack:

                async def send() -> Answer:
                    headers = {"Accept": JSON, "Content-Type": content, **self._identity(credential)}
                    asking = self._http.request(method, path, query=query, headers=headers, body=data)
                    return await stack.enter_async_context(asking)

                answer = await send()
                if answer.status == _UNAUTHORIZED and credential is not None and self._access.plugin is not None:
                    await answer.read(LARGEST_REFUSAL)
                    self._access.plugin.forget(credential)
                    credential = await self._credential(limit)
                    answer = await send()
                answered = True
                self.date = answer.headers.get("date", self.date)
                counts.API_REQUESTS[method, str(answer.status)] += 1
                if answer.status >= _FIRST_REFUSAL:
                    raise await _refusal(answer)
                yield answer
        except errors.NotSent:
            counts.API_REQUESTS[method, "not sent"] += 1
            raise
        except OSError as error:
            text = str(error) or type(error).__name__
            if not answered:
                counts.API_REQUESTS[method, "no answer"] += 1
            raise errors.NoAnswer(f"{method} {path} got no answer from the API server: {text}") from error

    async def _credential(self, limit: float | None) -> Credential | None:
        """The plugin's credential, with its certificate in use."""
        if self._access.plugin is None:
            return None
        try:
            async with asyncio.timeout(limit):
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
        ended, self._former, self._http = self._former, self._http, self._new_client()
        if ended is not None:
            await ended.close()

    def _new_client(self) -> HttpClient:
        return HttpClient(self._access.server, self._access.tls, self._access.server_name)

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


async def _refusal(answer: Answer) -> errors.KubeError:
    body = await answer.read(LARGEST_REFUSAL)
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = _Status(message=body[:200].decode(errors="replace"))
    header = answer.headers.get("retry-after", "")
    # the header may also be a date, but that would mean to trust the server's clock
    wait = float(header) if header.isascii() and header.isdigit() else _told(status)
    return errors.answered(answer.status, status.reason or answer.reason, status.message or status.error, wait)


def _told(status: _Status) -> float | None:
    return float(status.details.retry_after_seconds) if status.details and status.details.retry_after_seconds else None
