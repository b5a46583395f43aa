"""Minimal HTTP on plain ASGI: routes, handlers, calls and answers. limits.py decides which calls to admit."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

from aliquot.endpoints.names import written
from aliquot.racing import first_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class CallerKind(Enum):
    """What a caller may request."""

    SCHEDULER = "scheduler"
    """Decisions."""
    REPLICA = "replica"
    """Decisions that another server forwards."""
    READER = "reader"
    """Views: inspect, status, metrics, profiles."""


@dataclass(frozen=True, slots=True)
class Caller:
    """`groups`, `uid` and `extra` are those of its user in Kubernetes."""

    name: str
    kinds: frozenset[CallerKind]
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


ANYONE = Caller("anyone", frozenset(CallerKind))
"""The caller on a port without authentication."""


@dataclass(frozen=True)
class Response:
    body: bytes
    status: int = 200
    content_type: bytes = b"application/json"
    after: Callable[[], None] | None = None
    """Callback to run once the network has the answer."""
    dialect: str = ""
    """Dialect of the pod, if known."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Additional headers."""
    stream: AsyncGenerator[bytes, None] | None = None
    """The rest of a body that has no end yet. The port asks for the next piece when the client has read the last
    one, and closes it when the client is gone. It must let others run now and then."""


@dataclass(frozen=True)
class Call:
    """A request: the last segment of its path, its body, its full path, and its headers in lower case."""

    tail: str = ""
    body: bytes = b""
    path: str = ""
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    query: str = ""
    """The query string, as sent."""
    caller: Caller = ANYONE
    address: str = ""
    """The caller's address."""
    method: str = "GET"


Handler = Callable[[Call], Awaitable[Response]]
Guard = Callable[[Call], Awaitable[Response | None]]
"""The refusal of a caller, before it takes a place and before its body is read. None lets it go on."""


@dataclass(frozen=True)
class DecisionHandler:
    """A handler for schedulers that words its own errors: its callers discard the body of any status but 200."""

    handler: Handler
    fault: Callable[[str], Response]
    guard: Guard | None = None

    async def __call__(self, call: Call) -> Response:
        return await self.handler(call)


@dataclass(frozen=True)
class OpenHandler:
    """A handler that answers every caller under any load, and takes no body."""

    handler: Handler

    async def __call__(self, call: Call) -> Response:
        return await self.handler(call)


@dataclass(frozen=True)
class OwnRightsHandler:
    """A handler for every caller who proves who it is, whatever its kind, and that takes no body. It, or its guard,
    decides what that caller may see, by the caller's own rights in Kubernetes. It may word the port's faults itself."""

    handler: Handler
    fault: Callable[[str], Response] | None = None
    guard: Guard | None = None

    async def __call__(self, call: Call) -> Response:
        return await self.handler(call)


@dataclass(frozen=True)
class SlowHandler:
    """A handler that takes its own time, and no body: a 30 s profile takes 30 s. It limits itself."""

    handler: Handler

    async def __call__(self, call: Call) -> Response:
        return await self.handler(call)


def json(value: Any, status: int = 200, after: Callable[[], None] | None = None, dialect: str = "") -> Response:
    return Response(msgspec.json.encode(value, enc_hook=written), status, after=after, dialect=dialect)


PLAIN = b"text/plain; charset=utf-8"


def text(value: str, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Response:
    return Response(value.encode(errors="replace"), status, PLAIN, headers=headers)


def _go_error(value: str, status: int, *headers: tuple[bytes, bytes]) -> Response:
    """An error in the format of Go's net/http: with a newline, and `nosniff`."""
    return text(f"{value}\n", status, (*headers, (b"x-content-type-options", b"nosniff")))


OTHERWISE = ("*", "*")
"""The route for requests that match no other route."""


@dataclass(frozen=True)
class Routes:
    """Handlers by (method, path). A path that ends in `/*` takes another segment, which becomes the call's tail; one
    that ends in `/*/*` takes two, and the tail has both."""

    table: Mapping[tuple[str, str], Handler] = field(default_factory=dict)

    def find(self, method: str, path: str) -> tuple[Handler, str] | Response:
        """The handler and the call's tail, or the error answer if there is no handler."""
        path = path.rstrip("/") or "/"
        handler = self.table.get((method, path))
        if handler is not None:
            return handler, ""
        parent, _, tail = path.rpartition("/")
        below = f"{parent}/*"
        handler = None if self._methods(path) else self.table.get((method, below))
        if handler is not None:
            return handler, tail
        above, _, first = parent.rpartition("/")
        handler = self.table.get((method, f"{above}/*/*"))
        if handler is not None and first and tail:
            return handler, f"{first}/{tail}"
        if methods := self._methods(path) or self._methods(below):
            return _other_method(method, methods)
        otherwise = self.table.get(OTHERWISE)
        return (otherwise, "") if otherwise is not None else _go_error("404 page not found", 404)

    def _methods(self, path: str) -> list[str]:
        return sorted(method for method, known in self.table if known == path)


def _other_method(method: str, known: list[str]) -> Response:
    """List the methods of a path as the originals' router does."""
    allow = b"allow", ", ".join([*known, "OPTIONS"]).encode()
    return text("", headers=(allow,)) if method == "OPTIONS" else _go_error("Method Not Allowed", 405, allow)


PIECE = 256 * 2**10
"""Bytes to send at once. Between two pieces we see whether the client reads them, also under TLS."""


async def put(answer: Response, send: Send) -> None:
    """Send an answer without a stream to the network."""
    size = len(answer.body)
    await _begin(answer, send, (b"content-length", b"%d" % size))
    for begin in range(0, max(size, 1), PIECE):
        end = begin + PIECE
        await send({"type": "http.response.body", "body": answer.body[begin:end], "more_body": end < size})
    if answer.after is not None:
        answer.after()


async def put_stream(answer: Response, send: Send, receive: Receive, ending: asyncio.Event) -> None:
    """Send an answer with a stream until the stream ends, the client is gone, or `ending` is set."""
    assert answer.stream is not None, "an answer without a stream has a length"
    await _begin(answer, send)
    async with aclosing(answer.stream) as stream:
        await first_of(_put_pieces(stream, send), _disconnected(receive), ending.wait())
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _put_pieces(stream: AsyncGenerator[bytes, None], send: Send) -> None:
    async for piece in stream:
        if piece:
            await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _begin(answer: Response, send: Send, *headers: tuple[bytes, bytes]) -> None:
    known = [(b"content-type", answer.content_type), *headers, *answer.headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": known})
