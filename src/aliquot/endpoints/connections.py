"""Limits on the connections of a port: their number, and the time to send a request and to read the answer.

A connection that sends nothing, or a byte a minute, takes no slot among the calls. This module closes it.
"""

import asyncio
import math
from enum import Enum
from typing import NoReturn

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from aliquot import metrics
from aliquot.clock import Clock
from aliquot.endpoints import asgi
from aliquot.endpoints.limits import Gate, Limits
from aliquot.model.bounds import LARGEST_HEAD

KEEP_ALIVE_SECONDS = 120
"""Longer than Go's clients keep an idle connection: a POST on a connection that we just closed fails without a
retry."""
_LOOK_SECONDS = 1.0
_TOO_MANY = metrics.REJECTED.labels("too many connections")
READ_SECONDS = 30.0
"""Minimum time that a client gets to read an answer, however it reads: people's links are slower than schedulers'."""
_TOO_SLOW = metrics.REJECTED.labels("slow sender")
_SLOW_READER = metrics.REJECTED.labels("slow reader")
_HEAD_TOO_LARGE = metrics.REJECTED.labels("headers too large")


class _State(Enum):
    IDLE = 1
    """Between two calls, or before the first."""
    BEGUN = 2
    """Bytes arrived, but no complete request head."""
    CALLING = 3


class _HeadTooLarge(Exception):
    pass


class Connections:
    """`protocol` creates a connection for a listening socket; `watch` must run alongside."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        gate: Gate,
        limits: Limits,
        clock: Clock,
    ) -> None:
        self._config = config
        self._state = state
        self._limits = limits
        self.gate = gate
        self.clock = clock
        self._open: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def protocol(self) -> asyncio.Protocol:
        return Connection(self, self._config, self._state)

    def admit(self, new: "Connection") -> bool:
        """Admit a connection. At the limit, close the connection that has been silent longest."""
        if len(self._open) >= self._limits.connections:
            _TOO_MANY.inc()
            silent = [connection for connection in self._open if connection.state is not _State.CALLING]
            if not silent:
                return False
            min(silent, key=lambda connection: connection.since).end()
        self._open[new] = None
        return True

    def forget(self, ended: "Connection") -> None:
        self._open.pop(ended, None)

    async def watch(self) -> NoReturn:
        while True:
            await self.clock.sleep(_LOOK_SECONDS)
            self.end_slow()

    def end_slow(self) -> None:
        """Close connections that take too long to start a call, to read their answers, or to send anything."""
        now = self.clock.monotonic()
        for connection in list(self._open):
            silence = now - connection.since
            if now - connection.unread_since > max(self._limits.seconds, READ_SECONDS):
                _SLOW_READER.inc()
                connection.end()
            elif connection.state is _State.BEGUN and silence > self._limits.seconds:
                _TOO_SLOW.inc()
                connection.end()
            elif connection.state is _State.IDLE and silence > KEEP_ALIVE_SECONDS + _LOOK_SECONDS:
                connection.end()


class Connection(HttpToolsProtocol):
    def __init__(self, all_: Connections, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config, state, {})
        self._all = all_
        self.app: asgi.App = all_.gate
        self.state = _State.IDLE
        self.since = all_.clock.monotonic()
        self.unread_since = math.inf
        """When the client first fell behind on an answer that it still has not read."""
        self._is_written = False
        """We wrote that whole answer: the transport holds the rest."""
        self._in_head = False
        self._parsed_bytes = self._received_bytes = 0
        self._is_too_large = False
        self._is_last = False
        """The request asks for another protocol, which we do not speak. For the parser it has no body, so that its body
        would be the next request: with any user in its headers, on the connection of a front proxy."""

    def end(self) -> None:
        """Close at once and drop unsent data."""
        self._all.forget(self)
        self.transport.abort()

    # -- transport callbacks

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._all.admit(self):
            transport.abort()
        elif (callers := self._all.gate.callers) is not None:
            self.app = self._all.gate.of(callers.peer(transport))

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_last:
            return
        if self.state is _State.IDLE:
            self.state = _State.BEGUN
            self.since = self._all.clock.monotonic()
        super().data_received(data)
        if self._in_head:  # the parser does not report an unfinished header
            self._received_bytes += len(data)
            if self._received_bytes > LARGEST_HEAD:
                self._is_too_large = True
                self.send_400_response("")

    def pause_writing(self) -> None:
        self.unread_since = min(self.unread_since, self._all.clock.monotonic())
        super().pause_writing()

    def resume_writing(self) -> None:
        is_stream = self.cycle is not None and self.cycle.chunked_encoding
        if self._is_written or is_stream:  # of other answers, a client could read a little at a time and take forever
            self.unread_since, self._is_written = math.inf, False
        super().resume_writing()

    # -- parser callbacks

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._parsed_bytes = self._received_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._add(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._add(len(name) + len(value))
        if self._in_head:  # a trailer comes from the client: front proxies remove its lies from headers alone
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self.state = _State.CALLING
        super().on_headers_complete()
        if self.parser.should_upgrade():
            self._is_last, self.cycle.keep_alive = True, False

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self.state is _State.BEGUN:  # the rest of a call that we answered before reading it
            self.state = _State.IDLE
            self.since = self._all.clock.monotonic()

    def on_response_complete(self) -> None:
        self._is_written = self.flow.write_paused
        if not self._is_written:
            self.unread_since = math.inf
        if not self.pipeline:
            self.state = _State.BEGUN if self._in_head else _State.IDLE
            self.since = self._all.clock.monotonic()
        super().on_response_complete()

    def _add(self, size: int) -> None:
        self._parsed_bytes += size
        if self._parsed_bytes > LARGEST_HEAD:
            self._is_too_large = True
            raise _HeadTooLarge

    def send_400_response(self, msg: str) -> None:
        if not self._is_too_large:
            super().send_400_response(msg)
        elif not self.transport.is_closing():
            _HEAD_TOO_LARGE.inc()
            self.transport.write(_431)
            self.transport.close()


_431 = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 25\r\nconnection: close\r\n\r\n"
    b"the headers are too large"
)
