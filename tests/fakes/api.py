"""An API server behind the test's hand."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec
from aiohttp import web

from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api.front import Front
from aliquot.embedded.api.owning_store import OwningStore
from aliquot.embedded.api.registry import Registry

Next = Callable[[web.Request], Awaitable[web.StreamResponse]]
Fault = Callable[[web.Request, Next], Awaitable[web.StreamResponse]]


async def cut_before(request: web.Request, _: Next) -> web.StreamResponse:
    """The connection is cut when the request has arrived; nothing is done."""
    return _cut(request)


async def cut_after(request: web.Request, go_on: Next) -> web.StreamResponse:
    """The request is carried out, and the connection cut instead of an answer."""
    await go_on(request)
    return _cut(request)


def answer(status: int, **fields: Any) -> Fault:
    """A Status instead of doing what was asked."""

    async def refuse(_: web.Request, __: Next) -> web.StreamResponse:
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, **fields}
        return web.json_response(body, status=status)

    return refuse


def body(content: bytes, status: int = 200) -> Fault:
    """Any bytes as an answer."""

    async def send(_: web.Request, __: Next) -> web.StreamResponse:
        return web.Response(body=content, status=status, content_type="application/json")

    return send


def stream(*pieces: bytes, then_cut: bool = False) -> Fault:
    """A watch that sends these pieces, each for itself, and ends."""

    async def send(request: web.Request, _: Next) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0)
        return _cut(request) if then_cut else response

    return send


def held(arrived: asyncio.Event, release: asyncio.Event) -> Fault:
    """Says that a request has arrived, and carries it out only when told to."""

    async def wait(request: web.Request, go_on: Next) -> web.StreamResponse:
        arrived.set()
        await release.wait()
        return await go_on(request)

    return wait


def late(done: asyncio.Event, deliver: asyncio.Event) -> Fault:
    """The request is carried out at once, and its answer kept back until told to send it."""

    async def keep(request: web.Request, go_on: Next) -> web.StreamResponse:
        response = await go_on(request)
        done.set()
        await deliver.wait()
        return response

    return keep


def _cut(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    query: str
    body: Any


class Behind(Protocol):
    """The API server that a ScriptedApi stands before: reached by HTTP, and by hand at once."""

    @property
    def registry(self) -> Registry: ...

    @property
    def store(self) -> OwningStore: ...

    def application(self) -> web.Application: ...

    def close(self) -> None: ...


class Embedded:
    def __init__(self) -> None:
        self.cluster = EmbeddedCluster()
        self.registry, self.store = self.cluster.registry, self.cluster.store

    def application(self) -> web.Application:
        return Front(self.registry, lambda _: "", self.cluster.users).application()

    def close(self) -> None:
        self.store.close()


class ScriptedApi:
    """An API server, with a list of what was asked of it and faults for chosen requests.

    A fault is used once: `api.script("POST", "pods/.*/binding", cut_after)`; the path may name the query too.
    """

    def __init__(self, behind: Behind | None = None) -> None:
        self.behind = behind or Embedded()
        self.registry, self.store = self.behind.registry, self.behind.store
        self.seen: list[Seen] = []
        self.busy = 0
        """How many calls it works on now, watches not counted."""
        self._script: list[tuple[str, re.Pattern[str], Fault]] = []
        self._watches: list[web.Request] = []
        application = self.behind.application()
        application.middlewares.append(self._through)
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.behind.close()
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        host, port, *_ = self._runner.addresses[0]
        return f"http://{host}:{port}"

    def script(self, method: str, path: str, *faults: Fault) -> None:
        self._script += [(method, re.compile(path), fault) for fault in faults]

    def writes(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.method != "GET"]

    def queries(self, part: str) -> list[str]:
        return [seen.query for seen in self.seen if part in seen.query]

    def bindings(self) -> list[Seen]:
        return [seen for seen in self.writes() if seen.path.endswith("/binding")]

    def cut_watches(self, plural: str) -> None:
        """Cut every connection on which objects of this kind are watched."""
        for request in self._watches:
            if request.path.endswith(f"/{plural}"):
                _cut(request)

    @web.middleware
    async def _through(self, request: web.Request, handler: Next) -> web.StreamResponse:
        sent = await request.read()
        decoded = msgspec.json.decode(sent) if sent else None
        self.seen.append(Seen(request.method, request.path, request.query_string, decoded))
        if "watch" in request.query:
            return await self._perhaps_fail(request, handler)
        self.busy += 1
        try:
            return await self._perhaps_fail(request, handler)
        finally:
            self.busy -= 1

    async def _perhaps_fail(self, request: web.Request, handler: Next) -> web.StreamResponse:
        for place, (method, path, fault) in enumerate(self._script):
            if request.method == method and path.search(request.path_qs):
                del self._script[place]
                return await fault(request, handler)
        if "watch" not in request.query:
            return await handler(request)
        self._watches.append(request)
        try:
            return await handler(request)
        finally:
            self._watches = [other for other in self._watches if other is not request]
