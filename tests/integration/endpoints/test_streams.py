"""Answers without an end: they wait for their readers, and end with them or with the port."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aliquot import metrics
from aliquot.endpoints import asgi
from aliquot.endpoints.listener import Listener
from aliquot.model.bounds import MAX_STREAMS_OF_CALLER
from tests.fakes import FakeClock, until
from tests.integration.endpoints.test_connections import MUCH, rejected

ASK = b"GET /stream HTTP/1.1\r\nhost: a\r\n\r\n"
PIECE = bytes(2**20)


class Streams:
    """Streams of what a test puts into them."""

    def __init__(self) -> None:
        self.open = 0
        self.sent = 0
        self.more = asyncio.Event()
        """Whether they go on for ever."""
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(self, _: asgi.Call) -> asgi.Response:
        return asgi.Response(b"", stream=self._pieces())

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        self.open += 1
        try:
            while True:
                yield PIECE if self.more.is_set() else await self.lines.get()
                self.sent += 1
                await asyncio.sleep(0)
        finally:
            self.open -= 1


@asynccontextmanager
async def listening(streams: Streams, clock: FakeClock) -> AsyncIterator[int]:
    handler = asgi.OwnRightsHandler(streams.handle, lambda why: asgi.json({"kind": "Status", "message": why}, 503))
    routes = asgi.Routes({("GET", "/stream"): handler})
    async with Listener(routes, "127.0.0.1", 0, name="here", clock=clock) as listener:
        yield listener.port


async def opened(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(ASK)
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"200 OK" in head
    assert b"transfer-encoding: chunked" in head
    return reader, writer


@pytest.fixture
async def streams() -> Streams:
    return Streams()


async def test_each_piece_is_sent_at_once(streams: Streams, clock: FakeClock) -> None:
    async with listening(streams, clock) as port:
        reader, writer = await opened(port)
        streams.lines.put_nowait(b"one\n")
        assert await reader.readuntil(b"one\n\r\n") == b"4\r\none\n\r\n"
        writer.close()


def open_watches() -> float | None:
    return metrics.REGISTRY.get_sample_value("aliquot_open_watches", {"endpoint": "here"})


async def test_a_reader_that_goes_away_ends_its_stream(streams: Streams, clock: FakeClock) -> None:
    async with listening(streams, clock) as port:
        _, writer = await opened(port)
        await until(lambda: (streams.open, open_watches()) == (1, 1))
        writer.close()
        await until(
            lambda: (streams.open, open_watches()) == (0, 0), "the stream is closed although there is nothing to send"
        )


async def test_the_port_ends_streams_properly_when_it_closes(streams: Streams, clock: FakeClock) -> None:
    async with listening(streams, clock) as port:
        reader, writer = await opened(port)
    assert await reader.read() == b"0\r\n\r\n"
    assert streams.open == 0
    writer.close()


async def test_a_stream_waits_for_its_reader_and_not_for_ever(streams: Streams, clock: FakeClock) -> None:
    before = rejected("slow reader")
    async with listening(streams, clock) as port:
        _, writer = await opened(port)
        streams.more.set()
        streams.lines.put_nowait(b"")
        await until(lambda: streams.open == 0, "a reader that does not read is disconnected", passing=clock)
        assert streams.sent * len(PIECE) < MUCH, "only as much was sent as the system takes"
        writer.close()
    assert rejected("slow reader") == before + 1


async def test_a_reader_that_catches_up_may_stay(streams: Streams, clock: FakeClock) -> None:
    async with listening(streams, clock) as port:
        reader, writer = await opened(port)
        for _ in range(16):
            streams.lines.put_nowait(PIECE)
        await until(lambda: streams.sent > 0)
        streams.lines.put_nowait(b"last\n")
        await _until_read(reader, b"last\n")
        await clock.move(100)
        streams.lines.put_nowait(b"more\n")
        await _until_read(reader, b"more\n")
        writer.close()


async def _until_read(reader: asyncio.StreamReader, end: bytes) -> None:
    seen = b""
    while not seen.rstrip(b"\r\n").endswith(end.strip()):
        seen = (seen + await reader.read(2**16))[-64:]


async def test_one_caller_does_not_take_all_streams(streams: Streams, clock: FakeClock) -> None:
    async with listening(streams, clock) as port:
        writers = [(await opened(port))[1] for _ in range(MAX_STREAMS_OF_CALLER)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ASK)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"503" in head
        assert streams.open == MAX_STREAMS_OF_CALLER
        writers.pop().close()
        await until(lambda: streams.open == MAX_STREAMS_OF_CALLER - 1)
        writers.append((await opened(port))[1])
        for each in [*writers, writer]:
            each.close()
