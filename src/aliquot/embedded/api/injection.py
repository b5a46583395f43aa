"""Injects faults on demand: a middleware in front of everything else."""

import asyncio
from asyncio import BaseTransport
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

from aiohttp import web

from aliquot.apiserver import lists
from aliquot.apiserver.statuses import Busy, Conflict, StatusError
from aliquot.clock import Clock, SystemClock, came
from aliquot.embedded.api import routes
from aliquot.embedded.api.faults import Faults, FaultTarget, Reaction
from aliquot.embedded.api.listening import ListeningSocket
from aliquot.embedded.api.routes import Target
from aliquot.embedded.api.server import refusal
from aliquot.embedded.api.updates import STALE

_Next = Callable[[web.Request], Awaitable[web.StreamResponse]]
_NONE = Faults()
_NEVER = float("inf")


class FaultInjector:
    """`cluster.faults`. `run` must run while the cluster is open."""

    def __init__(self, listening: ListeningSocket, clock: Clock | None = None) -> None:
        self.counts: Counter[str] = Counter()
        """How often each fault happened, with `outages` and `droppedWatches`."""
        self._socket = listening
        self._clock = clock or SystemClock()
        self._faults = _NONE
        self._random = Random(_NONE.seed)
        self._watches: set[BaseTransport] = set()
        self._next_drop = _NEVER
        self._outage: tuple[Reaction, float] | None = None
        self._answering = asyncio.Event()
        self._answering.set()
        self._changed = asyncio.Event()

    @property
    def now(self) -> Faults:
        return self._faults

    @property
    def in_outage(self) -> bool:
        return self._outage is not None

    @property
    def reachable(self) -> bool:
        """Whether the server accepts connections."""
        return self._socket.is_open

    def set(self, faults: Faults) -> None:
        """Inject these faults and no others."""
        self._faults = faults
        self._random = Random(faults.seed)
        each = faults.drop_watches_each
        self._next_drop = self._clock.monotonic() + each if each else _NEVER
        self._changed.set()

    def clear(self) -> None:
        """End all faults at once; the counts stay."""
        self.set(_NONE)
        self.end_outage()

    def outage(self, seconds: float | None = None, how: Reaction = "refuse") -> None:
        """Start an outage, for `seconds` or until `end_outage`. Open watches are cut."""
        self.counts["outages"] += 1
        self._outage = how, _NEVER if seconds is None else self._clock.monotonic() + seconds
        if how == "refuse":
            self._socket.shut()
        else:
            self.drop_watches()
        self._answering.clear()
        self._changed.set()

    def end_outage(self) -> None:
        """End the outage. Hanging requests go on; the server accepts connections again in the next turn of the loop."""
        self._outage = None
        self._answering.set()
        self._changed.set()

    def drop_watches(self) -> int:
        """Cut every open watch. Returns how many there were."""
        dropped = len(self._watches)
        self.counts["droppedWatches"] += dropped
        for transport in self._watches:
            _cut(transport)
        self._watches.clear()
        return dropped

    async def run(self) -> None:
        while True:
            self._changed.clear()
            if self._outage is None and not self._socket.is_open:
                await self._socket.open()
            due = min(self._next_drop, self._outage[1] if self._outage else _NEVER)
            if due == _NEVER:
                await self._changed.wait()
            elif not await came(self._changed, due - self._clock.monotonic(), self._clock):
                self._do_what_is_due()

    def _do_what_is_due(self) -> None:
        now = self._clock.monotonic()
        if now >= self._next_drop:
            self.drop_watches()
            self._next_drop = now + self._faults.drop_watches_each
        if self._outage is not None and now >= self._outage[1]:
            self.end_outage()

    @web.middleware
    async def middleware(self, request: web.Request, handler: _Next) -> web.StreamResponse:
        """Handle a request, perhaps with a fault. Raises nothing."""
        await self._answering.wait()
        target = routes.parse(request.path)
        if target is None:
            return await handler(request)
        asked = _asked(request, target)
        fault = await self._suffered(asked)
        if fault == "lostRequests":
            return _without_answer(request)
        if fault in ("conflicts", "busy", "errors"):
            return refusal(_status(fault, asked, target))
        if asked.verb == "watch":
            return await self._watched(request, handler)
        response = await handler(request)
        return _without_answer(request) if fault == "lostAnswers" else response

    async def _suffered(self, asked: FaultTarget) -> str:
        faults = self._faults
        if not faults.concern(asked):
            return ""
        fault = faults.drawn(asked, self._random.random())
        if fault:
            self.counts[fault] += 1
        if faults.latency[1]:
            await self._clock.sleep(self._random.uniform(*faults.latency))
        return fault

    async def _watched(self, request: web.Request, handler: _Next) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            return await handler(request)
        self._watches.add(transport)
        try:
            return await handler(request)
        finally:
            self._watches.discard(transport)


def _asked(request: web.Request, target: Target) -> FaultTarget:
    verb = routes.verb_of(request.method, target, watch=lists.flag(request.query, "watch"))
    resource = "/".join(filter(None, (target.resource.plural, target.subresource)))
    return FaultTarget(verb, resource)


def _status(fault: str, asked: FaultTarget, target: Target) -> StatusError:
    if fault == "conflicts":
        return Conflict(target.resource.group, asked.resource, target.name, STALE)
    if fault == "busy":
        return Busy(1)
    return StatusError("Internal error occurred: injected fault")


def _without_answer(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        _cut(request.transport)
    return web.Response()


def _cut(transport: BaseTransport) -> None:
    if isinstance(transport, asyncio.Transport):
        transport.abort()
    else:
        transport.close()
