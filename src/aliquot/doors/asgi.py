"""Just enough HTTP on plain ASGI: routes to handlers, bodies with a limit, answers."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from aliquot.errors import BadInput

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LARGEST_BODY = 128 * 2**20
"""5,000 whole Node objects are about 63 MB; a scheduler without nodeCacheCapable sends them."""


class TooLarge(BadInput):
    """A body beyond the limit."""


@dataclass(frozen=True)
class Answer:
    body: bytes
    status: int = 200
    content_type: bytes = b"application/json"
    after: Callable[[], None] | None = None
    """Called when the answer has been handed to the network."""


@dataclass(frozen=True)
class Call:
    """A request: what its path's last piece named, its body, its whole path, and its headers in lower case."""

    tail: str = ""
    body: bytes = b""
    path: str = ""
    headers: Mapping[bytes, bytes] = field(default_factory=dict)


Handler = Callable[[Call], Awaitable[Answer]]


def json(value: Any, status: int = 200, after: Callable[[], None] | None = None) -> Answer:
    return Answer(msgspec.json.encode(value), status, after=after)


def text(value: str, status: int = 200) -> Answer:
    return Answer(value.encode(), status, b"text/plain; charset=utf-8")


@dataclass(frozen=True)
class Routes:
    """Handlers by (method, path); a path that ends in `/*` takes one more piece, given as the call's tail."""

    table: Mapping[tuple[str, str], Handler] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = await self._answer(scope, receive)
        headers = [(b"content-type", answer.content_type), (b"content-length", b"%d" % len(answer.body))]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})
        if answer.after is not None:
            answer.after()

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        path = scope["path"].rstrip("/") or "/"
        parent, _, tail = path.rpartition("/")
        for name, rest in ((path, ""), (f"{parent}/*", tail)):
            handler = self.table.get((scope["method"], name))
            if handler is not None:
                return await self._handle(handler, rest, scope, receive)
            if any(known == name for _, known in self.table):
                return text("Method Not Allowed", 405)
        return text("404 page not found", 404)

    async def _handle(self, handler: Handler, tail: str, scope: Scope, receive: Receive) -> Answer:
        try:
            return await handler(Call(tail, await _body(receive), scope["path"], dict(scope.get("headers", ()))))
        except TooLarge as error:
            return text(str(error), 413)


async def _body(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        piece = message.get("body", b"")
        size += len(piece)
        if size > LARGEST_BODY:
            raise TooLarge(f"the body is larger than {LARGEST_BODY} bytes")
        pieces.append(piece)
        if not message.get("more_body"):
            return b"".join(pieces)
