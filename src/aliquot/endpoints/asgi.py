"""Just enough HTTP on plain ASGI: routes to handlers, calls and answers. Who is let in, limits.py says."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

from aliquot.endpoints.names import written

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Kind(Enum):
    """What somebody calls for."""

    SCHEDULER = "scheduler"
    """Decisions."""
    REPLICA = "replica"
    """Decisions that another server passes on."""
    READER = "reader"
    """What is shown: inspect, status, metrics, profiles."""


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    kinds: frozenset[Kind]


ANYONE = Caller("anyone", frozenset(Kind))
"""Where nobody is asked who it is."""


@dataclass(frozen=True)
class Answer:
    body: bytes
    status: int = 200
    content_type: bytes = b"application/json"
    after: Callable[[], None] | None = None
    """Called when the answer has been handed to the network."""
    dialect: str = ""
    """Whose pod it is about, where that is known."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """More of them."""


@dataclass(frozen=True)
class Call:
    """A request: what its path's last piece named, its body, its whole path, and its headers in lower case."""

    tail: str = ""
    body: bytes = b""
    path: str = ""
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    query: str = ""
    """What follows the path's question mark, as it was sent."""
    caller: Caller = ANYONE
    address: str = ""
    """From where it came."""


Handler = Callable[[Call], Awaitable[Answer]]


@dataclass(frozen=True)
class Decision:
    """A handler for schedulers, with words of its own for a trouble: its callers throw away what comes with another
    code than 200."""

    handler: Handler
    fault: Callable[[str], Answer]

    async def __call__(self, call: Call) -> Answer:
        return await self.handler(call)


@dataclass(frozen=True)
class Open:
    """A handler that answers everybody, however busy the server is, and takes no body."""

    handler: Handler

    async def __call__(self, call: Call) -> Answer:
        return await self.handler(call)


@dataclass(frozen=True)
class Patient:
    """A handler that takes its own time, and no body: a profile of 30 s lasts 30 s. It limits itself."""

    handler: Handler

    async def __call__(self, call: Call) -> Answer:
        return await self.handler(call)


def json(value: Any, status: int = 200, after: Callable[[], None] | None = None, dialect: str = "") -> Answer:
    return Answer(msgspec.json.encode(value, enc_hook=written), status, after=after, dialect=dialect)


PLAIN = b"text/plain; charset=utf-8"


def text(value: str, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    return Answer(value.encode(errors="replace"), status, PLAIN, headers=headers)


def _go_error(value: str, status: int, *headers: tuple[bytes, bytes]) -> Answer:
    """As Go's HTTP package words an error: with a newline, and not to be taken for anything but text."""
    return text(f"{value}\n", status, (*headers, (b"x-content-type-options", b"nosniff")))


OTHERWISE = ("*", "*")
"""The route of whatever has no route of its own."""


@dataclass(frozen=True)
class Routes:
    """Handlers by (method, path); a path that ends in `/*` takes one more piece, given as the call's tail."""

    table: Mapping[tuple[str, str], Handler] = field(default_factory=dict)

    def find(self, method: str, path: str) -> tuple[Handler, str] | Answer:
        """The handler and the call's tail, or what is to be said where there is none."""
        path = path.rstrip("/") or "/"
        handler = self.table.get((method, path))
        if handler is not None:
            return handler, ""
        parent, _, tail = path.rpartition("/")
        below = f"{parent}/*"
        handler = None if self._methods(path) else self.table.get((method, below))
        if handler is not None:
            return handler, tail
        if methods := self._methods(path) or self._methods(below):
            return _other_method(method, methods)
        otherwise = self.table.get(OTHERWISE)
        return (otherwise, "") if otherwise is not None else _go_error("404 page not found", 404)

    def _methods(self, path: str) -> list[str]:
        return sorted(method for method, known in self.table if known == path)


def _other_method(method: str, known: list[str]) -> Answer:
    """As the originals' router says which methods a path has."""
    allow = b"allow", ", ".join([*known, "OPTIONS"]).encode()
    return text("", headers=(allow,)) if method == "OPTIONS" else _go_error("Method Not Allowed", 405, allow)


PIECE = 256 * 2**10
"""Bytes that are handed over at once: between two of them it is seen whether they are taken, also beneath TLS."""


async def put(answer: Answer, send: Send) -> None:
    """Hand an answer to the network."""
    headers = [
        (b"content-type", answer.content_type),
        (b"content-length", b"%d" % len(answer.body)),
        *answer.headers,
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    size = len(answer.body)
    for begin in range(0, max(size, 1), PIECE):
        end = begin + PIECE
        await send({"type": "http.response.body", "body": answer.body[begin:end], "more_body": end < size})
    if answer.after is not None:
        answer.after()
