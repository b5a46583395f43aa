"""In front of the API server: writes that are made after their client gave up, and servers that cannot reach it."""

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from random import Random

from aiohttp import web

from tests.reliability.history.figures import Figures
from tests.reliability.history.story import Story

_Next = Callable[[web.Request], Awaitable[web.StreamResponse]]
_READS = ("GET", "HEAD", "OPTIONS")


class Gate:
    """The API server acts on a request within `acts_within` seconds, or never."""

    def __init__(self, chance: Random, acts_within: float, story: Story, figures: Figures) -> None:
        self._chance = chance
        self._acts_within = acts_within
        self._story = story
        self._figures = figures
        self.names: dict[str, str] = {}
        """Whose token it is."""
        self.on_write: Callable[[str, str], None] = lambda _, __: None
        """Is told of every write before it is made: whose it is, and what."""
        self.late_share = 0.0
        """Of the servers' writes: the connection is cut, and the write is made some seconds later."""
        self._cut: set[str] = set()
        self._open: dict[str, set[asyncio.Transport]] = {}
        self._later: set[asyncio.Task[None]] = set()

    def cut(self, name: str) -> None:
        """This server does not reach the API server any more."""
        self._cut.add(name)
        for transport in self._open.get(name, ()):
            transport.abort()

    def mend(self, name: str) -> None:
        self._cut.discard(name)

    async def settled(self) -> None:
        """Every late write is made."""
        while self._later:
            await asyncio.wait(self._later)

    @web.middleware
    async def middleware(self, request: web.Request, handler: _Next) -> web.StreamResponse:
        name, transport = self.names.get(_token(request), ""), request.transport
        if not name or not isinstance(transport, asyncio.Transport):
            return await handler(request)
        if name in self._cut:
            return _gone(transport)
        writes = request.method not in _READS
        if writes:
            self.on_write(name, f"{request.method} {request.path}")
        if writes and self._chance.random() < self.late_share:
            await request.read()
            task = asyncio.create_task(self._make_later(request, handler, name))
            self._later.add(task)
            task.add_done_callback(self._later.discard)
            return _gone(transport)
        self._open.setdefault(name, set()).add(transport)
        try:
            return await handler(request)
        finally:
            self._open[name].discard(transport)

    async def _make_later(self, request: web.Request, handler: _Next, name: str) -> None:
        began = time.monotonic()
        await asyncio.sleep(self._chance.choice((0.0, 0.1, 0.3, 0.7)) * self._chance.random() * self._acts_within)
        if time.monotonic() - began > self._acts_within:
            return
        answer = await handler(request)
        self._figures.counts["writes made after their client gave up"] += 1
        what = f"{request.method} {request.path}"
        self._story.tell(f"made late, of {name}: {what} -> {answer.status}", *_about(request.path))


def _about(path: str) -> tuple[str, ...]:
    return () if "/pods/" not in path else (path.split("/pods/")[1].split("/")[0],)


def _token(request: web.Request) -> str:
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    return base64.b64decode(value).decode().partition(":")[2] if kind.lower() == "basic" else value


def _gone(transport: asyncio.Transport) -> web.StreamResponse:
    transport.abort()
    return web.Response()
