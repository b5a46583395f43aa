"""A small HTTP/1.1 client of one server, on httptools' parser. A library for all of HTTP would take 8 MB of each agent.

There are no redirects, no cookies and no proxies: an API server needs none.
"""

import asyncio
import ssl
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import quote, unquote, urlencode, urlsplit

import httptools

import aliquot
from aliquot.kube.errors import NotSent
from aliquot.kube.sockets import connected
from aliquot.model.bounds import LARGEST_ANSWER, LARGEST_HEAD
from aliquot.plain import why

_IDLE_SECONDS = 45.0
"""How long a connection waits for its next request. An API server closes it after 90 s, most load balancers after 60 s
or later."""
_MOST_HELD = 2**18
"""Bytes of a body that wait for their reader. No more are read from the connection then, nor inflated at a time."""
_AGENT = f"aliquot/{aliquot.__version__}"
"""The part before the slash is also our name in the managedFields of objects."""
_PATH_MARKS = "/%:@!$&'()*+,;="
"""Also the percent sign, since the path in a server's address is already quoted."""
_PORTS = {"http": 80, "https": 443}
_FIRST_FINAL_STATUS = 200
_WE_CLOSED = "we have closed the connection"


class _Gunzip:
    """Inflates a body in pieces of a bounded size. It may have several members, as gzip's own files."""

    def __init__(self) -> None:
        self._member: Any = None

    def __call__(self, data: bytes) -> Iterator[bytes]:
        """Raises ConnectionError."""
        try:
            while data:
                if self._member is None or self._member.eof:
                    self._member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
                yield self._member.decompress(data, _MOST_HELD)
                data = self._member.unconsumed_tail or self._member.unused_data
        except zlib.error as error:
            raise ConnectionError(f"the answer's body is not gzip: {error}") from error

    def end(self) -> None:
        """Raises ConnectionError."""
        if self._member is not None and not self._member.eof:
            raise ConnectionError("the answer's gzip body was cut")


class Answer:
    """An answer as it arrives. httptools calls the methods `on_...`."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.status = 0
        self.reason = ""
        self.headers: dict[str, str] = {}
        """By lowercase name."""
        self.is_whole = False
        self._transport = transport
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        """Until the end, because the two refer to each other: buffers would stay until the garbage collector runs."""
        self._changed = asyncio.Event()
        self._may_keep_connection = False
        self._has_head = False
        self._ends_with_connection = False
        self._gunzip: _Gunzip | None = None
        self._pieces: list[bytes] = []
        self._held = 0
        self._beside_body = 0
        """Bytes since the last of the body: of a head, of trailers, or around chunks."""
        self._lost = ""
        """Why no more data comes."""

    @property
    def keeps_connection(self) -> bool:
        """Not while some of the body waits for a reader: the connection may have been paused for it."""
        return self._may_keep_connection and not self._pieces

    async def begin(self) -> None:
        """Wait for status and headers. Raises OSError."""
        while not self._has_head:
            await self._more()

    async def read(self, most: int = LARGEST_ANSWER) -> bytes:
        """The whole body of at most so many bytes. Raises OSError."""
        pieces, size = [], 0
        async for piece in self.pieces():
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise ConnectionError(f"the answer has more than {most} bytes")
        return b"".join(pieces)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it arrives. Raises OSError."""
        while True:
            if self._pieces:
                taken = b"".join(self._pieces)
                self._pieces, self._held = [], 0
                self._transport.resume_reading()
                for piece in self._gunzip(taken) if self._gunzip else (taken,):
                    yield piece
            elif self.is_whole:
                if self._gunzip:
                    self._gunzip.end()
                return
            else:
                await self._more()

    def close(self, fault: str = _WE_CLOSED) -> None:
        if not self._lost:
            self.end(fault)
            self._transport.abort()

    def feed(self, data: bytes) -> None:
        assert self._parser is not None, "no data comes after the end"
        self._beside_body += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.close(f"the answer is not HTTP/1.1: {error.__context__ or error}")
        if self._beside_body > LARGEST_HEAD:
            self.close("the answer's head is too large")
        if self.is_whole:
            self._parser = None

    def end(self, fault: str) -> None:
        """The connection has ended, by a `fault` or as it should."""
        self._may_keep_connection = False
        if self._ends_with_connection and not fault and not self._lost:
            self.is_whole = True
        self._lost = self._lost or fault or "the connection was closed"
        self._parser = None
        self._changed.set()

    async def _more(self) -> None:
        if self._lost:
            raise ConnectionError(self._lost)
        self._changed.clear()
        await self._changed.wait()

    # -- called by the parser; what they raise, feed_data raises

    def on_message_begin(self) -> None:
        if self.is_whole:
            raise ValueError("more data than one answer")

    def on_status(self, reason: bytes) -> None:
        self.reason += reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # a trailer comes too late to change anything
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self.status = self._parser.get_status_code()
        if self.status < _FIRST_FINAL_STATUS:  # the answer proper follows
            self.reason = ""
            self.headers.clear()
            return
        if self.headers.get("content-encoding", "").lower() == "gzip":
            self._gunzip = _Gunzip()
        self._ends_with_connection = not {"content-length", "transfer-encoding"} & self.headers.keys()
        self._has_head = True
        self._changed.set()

    def on_body(self, piece: bytes) -> None:
        self._beside_body = 0
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held > _MOST_HELD:
            self._transport.pause_reading()
        self._changed.set()

    def on_message_complete(self) -> None:
        if self._has_head:
            assert self._parser is not None
            self.is_whole = True
            self._may_keep_connection = self._parser.should_keep_alive()
            self._changed.set()


class _Connection(asyncio.Protocol):
    """A connection with one request at a time."""

    def __init__(self, forget: Callable[["_Connection"], None]) -> None:
        self._forget = forget
        self._transport: asyncio.Transport
        self._answer: Answer | None = None
        self.ended = asyncio.Event()
        self.idle_since = 0.0

    @property
    def is_free(self) -> bool:
        """Whether the last request is sent and its answer taken, and another one may follow."""
        answer, transport = self._answer, self._transport
        complete = answer is not None and answer.keeps_connection and not transport.get_write_buffer_size()
        return complete and not transport.is_closing()

    async def ask(self, request: bytes) -> Answer:
        """The answer, from its body on. Raises OSError."""
        self._answer = Answer(self._transport)
        self._transport.write(request)
        await self._answer.begin()
        return self._answer

    def close(self) -> None:
        if not self.ended.is_set():
            if self._answer is not None:
                self._answer.end(_WE_CLOSED)
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.is_whole:
            self.close()  # nothing was asked
        else:
            self._answer.feed(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None:
            self._answer.end(str(error) or type(error).__name__ if error else "")
        self.ended.set()
        self._forget(self)


class HttpClient:
    """Connections to one server, kept for further requests. There are as many as there are requests at a time."""

    def __init__(self, server: str, tls: ssl.SSLContext | None, server_name: str | None = None) -> None:
        self._server = server
        self._tls = tls
        self._server_name = server_name
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._is_closed = False

    async def close(self) -> None:
        self._is_closed = True
        for connection in (ending := list(self._open)):
            connection.close()
        for connection in ending:
            await connection.ended.wait()

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str],
        body: bytes | None = None,
    ) -> AsyncIterator[Answer]:
        """Send a request, and give its answer from the body on. Raises NotSent, and OSError once it is sent."""
        try:
            message = self._message(method, path, query, headers, body)
        except ValueError as error:
            raise NotSent(f"no request can be made for the API server at {self._server}: {error}") from error
        connection, answer = await self._ask(message, may_repeat=method == "GET")
        try:
            yield answer
        finally:
            self._put_back(connection)

    async def _ask(self, message: bytes, *, may_repeat: bool) -> tuple[_Connection, Answer]:
        """A server may close an idle connection at the moment of a request. What may be repeated is sent again then."""
        while True:
            idle = self._take_idle()
            connection = idle or await self._connect()
            try:
                return connection, await connection.ask(message)
            except BaseException as error:
                connection.close()
                if idle is None or not may_repeat or self._is_closed or not isinstance(error, ConnectionError):
                    raise

    def _take_idle(self) -> _Connection | None:
        too_old = asyncio.get_running_loop().time() - _IDLE_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.is_free and connection.idle_since > too_old:
                return connection
            connection.close()
        return None

    def _put_back(self, connection: _Connection) -> None:
        """The longest idle connections come first in the list, and the latest one is used next."""
        now = asyncio.get_running_loop().time()
        for other in self._idle:
            if other.idle_since <= now - _IDLE_SECONDS:
                other.close()
        if connection.is_free and not self._is_closed:
            connection.idle_since = now
            self._idle.append(connection)
        else:
            connection.close()

    def _forget(self, connection: _Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def _connect(self) -> _Connection:
        try:
            url = urlsplit(self._server)
            host = url.hostname or ""
            tls: dict[str, Any] = {}
            if url.scheme == "https":
                tls = {"ssl": self._tls or ssl.create_default_context(), "server_hostname": self._server_name or host}
            made = await connected(host, url.port or _PORTS[url.scheme])
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(lambda: _Connection(self._forget), sock=made, **tls)
        except (OSError, ValueError) as error:
            raise NotSent(f"the API server at {self._server} cannot be reached: {why(error)}") from error
        if self._is_closed:
            connection.close()
            raise NotSent("the client was closed meanwhile")
        self._open.add(connection)  # not earlier: uvloop tells no protocol that its connection was given up
        return connection

    def _message(
        self, method: str, path: str, query: Mapping[str, str] | None, headers: Mapping[str, str], body: bytes | None
    ) -> bytes:
        """Raises ValueError for an address that is none, and for a header that would be more than one."""
        url = urlsplit(self._server)
        target = quote(f"{url.path.rstrip('/')}/{path}", safe=_PATH_MARKS)
        if query:
            target += f"?{urlencode(query, quote_via=quote)}"
        credentials, _, host = url.netloc.rpartition("@")
        every = {"Host": host, "User-Agent": _AGENT, "Accept-Encoding": "gzip"}
        if credentials:  # as kubectl sends them
            every["Authorization"] = f"Basic {b64encode(unquote(credentials).encode()).decode()}"
        every |= headers
        if body is not None:
            every["Content-Length"] = str(len(body))
        for name, value in every.items():
            if not value.isprintable():
                raise ValueError(f"the header {name} has a line break or another control character")
        lines = (f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in every.items()), "", "")
        return "\r\n".join(lines).encode() + (body or b"")
