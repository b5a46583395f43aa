"""Admit the calls of a port, limited in number, size and time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

import structlog

from aliquot import metrics
from aliquot.clock import Clock, SystemClock
from aliquot.endpoints import asgi
from aliquot.endpoints.asgi import ANYONE, Caller, CallerKind
from aliquot.endpoints.callers import Peer, PortCallers
from aliquot.model.bounds import MAX_STREAMS, MAX_STREAMS_OF_CALLER

_log = structlog.get_logger()

_CLOSE = ((b"connection", b"close"),)
_RETRY = ((b"retry-after", b"1"),)
_TOO_LARGE = metrics.REJECTED.labels("body too large")
_TOO_MANY = metrics.REJECTED.labels("too many calls")
_TOO_MUCH = metrics.REJECTED.labels("too many bytes at once")
_UNREAD = metrics.REJECTED.labels("too many bytes to send")
_TOO_SLOW = metrics.REJECTED.labels("slow sender")
_TOO_LONG = metrics.REJECTED.labels("no answer in time")
_TOO_MANY_STREAMS = metrics.REJECTED.labels("too many streams")
_CRASHED = metrics.REJECTED.labels("crash")
_SOONEST_SECONDS = 0.001
_DECIDED_FOR = frozenset({CallerKind.SCHEDULER, CallerKind.REPLICA})
_SHOWN_TO = frozenset({CallerKind.READER})


@dataclass(frozen=True)
class Limits:
    """The limits of a port."""

    body: int = 128 * 2**20
    """Bytes. 5,000 whole Node objects are about 63 MB; a scheduler without nodeCacheCapable sends them."""
    bodies: int = 256 * 2**20
    """Bytes of all bodies that we read or handle, and of all answers that we send."""
    seconds: float = 4.5
    """Time for a call from its first line to the answer. kube-scheduler waits 5 s for an extender by default, and
    should see our error."""
    concurrency: int = 512
    """Concurrent calls."""
    connections: int = 1024


USUAL = Limits()


class _TooLarge(Exception):
    pass


class _TooMuch(Exception):
    pass


class _Gone(Exception):
    pass


class _InFlight:
    """A call in progress."""

    __slots__ = ("answered", "fault", "is_read", "read_bytes", "send", "until")

    def __init__(self, send: asgi.Send, fault: Callable[[str], asgi.Response], until: float) -> None:
        self.send = send
        self.fault = fault
        self.until = until
        self.is_read = False
        self.read_bytes = 0
        self.answered = False


class Gate:
    """Routes as an ASGI application.

    A call that takes too long gets an error in its endpoint's words. Its handler still runs to the end and keeps its
    slot until then, because nothing may interrupt a commit. This needs `watch` to run.
    """

    def __init__(
        self,
        routes: asgi.Routes,
        limits: Limits = USUAL,
        clock: Clock | None = None,
        callers: PortCallers | None = None,
    ) -> None:
        """With `callers`, serve only callers that it knows; see `of`."""
        self.callers = callers
        self._routes = routes
        self._limits = limits
        self._clock = clock or SystemClock()
        self._in_flight: dict[_InFlight, None] = {}  # in order: all have the same timeout, so the first expires first
        self._overdue_calls: set[_InFlight] = set()
        self._held_bytes = 0
        self._answering: set[asyncio.Task[None]] = set()
        self._streams = Counter[str]()
        """Open streams, by caller."""
        self._ending = asyncio.Event()

    @property
    def busy(self) -> int:
        """The number of calls in progress."""
        return len(self._in_flight) + len(self._overdue_calls)

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return self._streams.total()

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Serve any caller."""
        await self._answer_caller(ANYONE, scope, receive, send)

    def of(self, peer: Peer) -> asgi.App:
        """The application of a connection. Open routes answer every caller: kubelet's probes present no credentials."""

        async def application(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
            found = self._routes.find(scope["method"], scope["path"])
            if isinstance(found, tuple) and isinstance(found[0], asgi.OpenHandler):
                await self(scope, receive, send)
                return
            caller = await peer.caller(scope)
            if isinstance(caller, Caller):
                handler = found[0] if isinstance(found, tuple) else None
                wanted = _DECIDED_FOR if isinstance(handler, asgi.DecisionHandler) else _SHOWN_TO
                refused = None if isinstance(handler, asgi.OwnRightsHandler) else peer.refusal(caller, wanted)
                if refused is None:
                    await self._answer_caller(caller, scope, receive, send)
                    return
                caller = refused
            await asgi.put(caller, send)

        return application

    async def _answer_caller(self, caller: Caller, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        found = self._routes.find(scope["method"], scope["path"])
        if isinstance(found, asgi.Response):
            await asgi.put(found, send)
            return
        handler, tail = found
        if isinstance(handler, asgi.OpenHandler | asgi.SlowHandler):
            shown = await _handled(handler, _call(scope, tail, caller), _failed)
            await self._put(shown, send, _unavailable, self._limits.bodies // 2)
            return
        fault, until = _fault_of(handler) or _unavailable, self._clock.monotonic() + self._limits.seconds
        refused = await _refusal(handler, _call(scope, tail, caller))
        if refused is not None:
            await asgi.put(refused, send)
            return
        if self.busy >= self._limits.concurrency:
            _TOO_MANY.inc()
            await asgi.put(fault(f"{self.busy} calls are in progress, which is the limit; try again"), send)
            return
        in_flight = _InFlight(send, fault, until)
        self._in_flight[in_flight] = None
        try:
            answer = await self._answer(handler, tail, caller, scope, receive, in_flight)
        finally:
            self._held_bytes -= in_flight.read_bytes
            self._in_flight.pop(in_flight, None)
            self._overdue_calls.discard(in_flight)
        if answer is None or in_flight.answered:
            if answer is not None and answer.stream is not None:
                await answer.stream.aclose()
        elif answer.stream is not None:
            await self._put_stream(answer, caller, send, receive, fault)
        else:
            is_decision = isinstance(handler, asgi.DecisionHandler)
            await self._put(answer, send, fault, self._limits.bodies // (1 if is_decision else 2))

    async def _put_stream(
        self,
        answer: asgi.Response,
        caller: Caller,
        send: asgi.Send,
        receive: asgi.Receive,
        fault: Callable[[str], asgi.Response],
    ) -> None:
        """Send a stream, which takes no place among the calls. One caller's streams do not take all places."""
        if self._streams.total() >= MAX_STREAMS or self._streams[caller.name] >= MAX_STREAMS_OF_CALLER:
            _TOO_MANY_STREAMS.inc()
            assert answer.stream is not None
            await answer.stream.aclose()
            await asgi.put(fault("too many streams are open; try again"), send)
            return
        self._streams[caller.name] += 1
        try:
            await asgi.put_stream(answer, send, receive, self._ending)
        finally:
            self._streams[caller.name] -= 1
            if not self._streams[caller.name]:
                del self._streams[caller.name]

    def end_streams(self) -> None:
        """End every stream, now and from now on: the port is about to close."""
        self._ending.set()

    async def _put(
        self, answer: asgi.Response, send: asgi.Send, fault: Callable[[str], asgi.Response], most: int
    ) -> None:
        """Send an answer; its bytes count until the client reads them. If all would have more than `most` bytes, send a
        fault instead. Always send a short answer: it may report a completed change."""
        held = self._held_bytes
        if held and held + len(answer.body) > most and len(answer.body) > asgi.PIECE:
            _UNREAD.inc()
            answer = fault(f"calls and answers in progress hold {held} of {most} bytes; try again")
        size = len(answer.body)
        self._held_bytes += size
        try:
            await asgi.put(answer, send)
        finally:
            self._held_bytes -= size

    async def _answer(
        self,
        handler: asgi.Handler,
        tail: str,
        caller: Caller,
        scope: asgi.Scope,
        receive: asgi.Receive,
        in_flight: _InFlight,
    ) -> asgi.Response | None:
        try:
            headers = dict(scope.get("headers", ()))
            if int(headers.get(b"content-length", 0)) > self._limits.body:
                raise _TooLarge
            body = b"" if isinstance(handler, asgi.OwnRightsHandler) else await self._body(receive, in_flight)
            in_flight.is_read = True
            fault = _fault_of(handler) or _failed
            return await _handled(handler, _call(scope, tail, caller, body, headers), fault)
        except _Gone:
            return None
        except _TooLarge:
            _TOO_LARGE.inc()
            return asgi.text(f"the body is larger than {self._limits.body} bytes", 413)
        except _TooMuch:
            _TOO_MUCH.inc()
            most = self._limits.bodies
            return in_flight.fault(f"calls and answers in progress already hold the limit of {most} bytes; try again")

    async def _body(self, receive: asgi.Receive, in_flight: _InFlight) -> bytes:
        """Read a body. Count received bytes, not announced bytes: a promise takes no other caller's place."""
        pieces: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Gone
            piece = message.get("body", b"")
            in_flight.read_bytes += len(piece)
            self._held_bytes += len(piece)
            if in_flight.read_bytes > self._limits.body:
                raise _TooLarge
            if self._held_bytes > self._limits.bodies:
                raise _TooMuch
            pieces.append(piece)
            if not message.get("more_body"):
                return piece if len(pieces) == 1 else b"".join(pieces)

    # -- overdue calls

    async def watch(self) -> NoReturn:
        while True:
            await self._clock.sleep(self._until_next())
            self.answer_overdue()

    def answer_overdue(self) -> None:
        """Answer every call past its deadline."""
        now = self._clock.monotonic()
        while (in_flight := next(iter(self._in_flight), None)) is not None and in_flight.until <= now:
            del self._in_flight[in_flight]
            self._overdue_calls.add(in_flight)
            in_flight.answered = True
            task = asyncio.create_task(asgi.put(self._overdue(in_flight), in_flight.send))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    def _until_next(self) -> float:
        """Seconds until the next deadline; calls that arrive meanwhile expire later."""
        first = next(iter(self._in_flight), None)
        if first is None:
            return self._limits.seconds
        return max(first.until - self._clock.monotonic(), _SOONEST_SECONDS)

    def _overdue(self, in_flight: _InFlight) -> asgi.Response:
        if not in_flight.is_read:
            _TOO_SLOW.inc()
            return asgi.text(f"the body did not arrive within {self._limits.seconds:g} s", 408, _CLOSE)
        _TOO_LONG.inc()
        return in_flight.fault(f"Aliquot has not answered within {self._limits.seconds:g} s; the work continues")


async def _refusal(handler: asgi.Handler, call: asgi.Call) -> asgi.Response | None:
    """What the handler's guard says of a caller, if it has one."""
    guard = handler.guard if isinstance(handler, asgi.DecisionHandler | asgi.OwnRightsHandler) else None
    return await guard(call) if guard is not None else None


async def _handled(handler: asgi.Handler, call: asgi.Call, fault: Callable[[str], asgi.Response]) -> asgi.Response:
    try:
        return await handler(call)
    except Exception:
        _CRASHED.inc()
        _log.exception("a handler raised an exception; this is a bug", path=call.path)
        return fault("Aliquot failed to handle this call; see its log")


def _fault_of(handler: asgi.Handler) -> Callable[[str], asgi.Response] | None:
    """How a handler words the port's faults, if it does."""
    return handler.fault if isinstance(handler, asgi.DecisionHandler | asgi.OwnRightsHandler) else None


def _failed(why: str) -> asgi.Response:
    return asgi.text(why, 500)


def _call(
    scope: asgi.Scope, tail: str, caller: Caller, body: bytes = b"", headers: Mapping[bytes, bytes] | None = None
) -> asgi.Call:
    query = scope.get("query_string", b"").decode("latin-1")
    known = dict(scope.get("headers", ())) if headers is None else headers
    host, _ = scope.get("client") or ("", 0)
    return asgi.Call(tail, body, scope["path"], known, query, caller, host, scope["method"])


def _unavailable(why: str) -> asgi.Response:
    return asgi.text(why, 503, _RETRY)
