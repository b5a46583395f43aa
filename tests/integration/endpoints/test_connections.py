"""Connections that are slow, silent, too many, or send too much."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from aliquot import metrics
from aliquot.endpoints import asgi
from aliquot.endpoints.limits import Limits
from aliquot.endpoints.listener import Listener
from tests.fakes import FakeClock, until

LIVE = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n"
LONG = LIVE.replace(b"healthz", b"long")
MUCH = 32 * 2**20
"""Bytes: more than the system takes for a peer that does not read."""


@dataclass
class Peer:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, text: bytes) -> None:
        self.writer.write(text)

    async def receive(self) -> bytes:
        """A whole answer; its body follows an empty line."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        (length,) = [int(line.split(b":")[1]) for line in head.splitlines() if line.startswith(b"content-length")]
        return head.splitlines()[0].split(b" ")[1] + b" " + await self.reader.readexactly(length)

    async def is_closed(self) -> bool:
        try:
            return not await self.reader.read()
        except ConnectionResetError:
            return True


class Server:
    def __init__(self, port: int, clock: FakeClock) -> None:
        self.port = port
        self.clock = clock
        self._peers: list[Peer] = []

    async def peer(self) -> Peer:
        made = Peer(*await asyncio.open_connection("127.0.0.1", self.port))
        self._peers.append(made)
        return made

    def connections(self) -> float | None:
        return metrics.REGISTRY.get_sample_value("aliquot_connections", {"endpoint": "here"})

    def end(self) -> None:
        for peer in self._peers:
            peer.writer.close()


@asynccontextmanager
async def serving(clock: FakeClock, **limits: int) -> AsyncIterator[Server]:
    async def live(_: asgi.Call) -> asgi.Response:
        return asgi.text("ok")

    async def echo(call: asgi.Call) -> asgi.Response:
        return asgi.Response(call.body)

    async def long(_: asgi.Call) -> asgi.Response:
        return asgi.Response(bytes(MUCH))

    routes = asgi.Routes({("GET", "/healthz"): asgi.OpenHandler(live), ("GET", "/long"): long, ("POST", "/"): echo})
    async with Listener(routes, "127.0.0.1", 0, name="here", limits=Limits(**limits), clock=clock) as listener:
        made = Server(listener.port, clock)
        try:
            yield made
        finally:
            made.end()


def rejected(cause: str) -> float:
    return metrics.REGISTRY.get_sample_value("aliquot_rejected_calls_total", {"cause": cause}) or 0


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"P", id="one byte"),
        pytest.param(b"\r\n", id="an empty line"),
        pytest.param(b"POST / HTTP/1.1\r\nhost: a\r\n", id="headers without an end"),
        pytest.param(LIVE + b"G", id="one byte after a call"),
    ],
)
async def test_an_unfinished_request_is_disconnected(clock: FakeClock, said: bytes) -> None:
    before = rejected("slow sender")
    async with serving(clock, seconds=4) as server:
        peer = await server.peer()
        peer.send(said)
        if said.startswith(LIVE):
            await peer.receive()
        ended = asyncio.ensure_future(peer.is_closed())
        await until(ended.done, passing=clock)
        assert rejected("slow sender") == before + 1
        assert server.connections() == 0


async def test_sending_a_byte_now_and_then_does_not_help(clock: FakeClock) -> None:
    async with serving(clock, seconds=4) as server:
        peer = await server.peer()
        ended = asyncio.ensure_future(peer.is_closed())
        began = clock.monotonic()
        for letter in b"POST / HTTP/1.1\r\nhost: abcdefg":
            if ended.done():
                break
            peer.send(bytes([letter]))
            await asyncio.sleep(0.01)
            await clock.move(1)
        await until(ended.done, passing=clock)
        assert clock.monotonic() - began < 20


async def test_an_idle_connection_outlives_go_s_idle_timeout(clock: FakeClock) -> None:
    async with serving(clock) as server:
        peer = await server.peer()
        await until(lambda: server.connections() == 1)
        ended = asyncio.ensure_future(peer.is_closed())
        await clock.move(110)
        assert server.connections() == 1
        await until(ended.done, passing=clock)
        assert server.connections() == 0


async def test_a_connection_can_be_reused(clock: FakeClock) -> None:
    async with serving(clock, seconds=4) as server:
        peer = await server.peer()
        for _ in range(5):
            peer.send(LIVE)
            assert await peer.receive() == b"200 ok"
            await clock.move(60)
        assert server.connections() == 1


async def test_a_body_that_is_too_large_is_drained_and_the_connection_stays_open(clock: FakeClock) -> None:
    async with serving(clock, seconds=4, body=10) as server:
        peer = await server.peer()
        peer.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 300000\r\n\r\n" + bytes(200_000))
        assert await peer.receive() == b"413 the body is larger than 10 bytes"
        peer.send(bytes(100_000))
        peer.send(LIVE)
        assert await peer.receive() == b"200 ok"
        await clock.move(60)
        assert server.connections() == 1


async def test_a_client_that_does_not_read_the_answer_is_disconnected(clock: FakeClock) -> None:
    before = rejected("slow reader")
    async with serving(clock, seconds=4) as server:
        peer = await server.peer()
        peer.send(LONG)
        await until(lambda: rejected("slow reader") > before, passing=clock)
        assert server.connections() == 0
    assert rejected("slow reader") == before + 1


async def test_reading_a_little_now_and_then_does_not_help(clock: FakeClock) -> None:
    before = rejected("slow reader")
    async with serving(clock, seconds=4) as server:
        peer = await server.peer()
        peer.send(LONG)
        began = clock.monotonic()
        while rejected("slow reader") == before and clock.monotonic() - began < 100:
            await peer.reader.read(2**20)
            await asyncio.sleep(0.01)
            await clock.move(5)
        assert clock.monotonic() - began < 50
        assert server.connections() == 0
    assert rejected("slow reader") == before + 1


async def test_unread_answers_count_against_the_limit_for_bodies(clock: FakeClock) -> None:
    async with serving(clock, bodies=MUCH + 2**20) as server:
        slow = await server.peer()
        slow.send(LONG)
        await slow.reader.read(1)
        why = f"calls and answers in progress hold {MUCH} of {(MUCH + 2**20) // 2} bytes; try again"
        other = await server.peer()
        other.send(LONG)
        assert await other.receive() == b"503 " + why.encode()
        other.send(LIVE)
        assert await other.receive() == b"200 ok"
        slow.writer.transport.abort()
        await until(lambda: server.connections() == 1)
        other.send(LONG)
        assert len(await other.receive()) == len(b"200 ") + MUCH


async def test_a_client_that_reads_a_long_answer_in_time_stays_connected(clock: FakeClock) -> None:
    before = rejected("slow reader")
    async with serving(clock, seconds=60) as server:
        peer = await server.peer()
        for _ in range(2):
            peer.send(LONG)
            assert len(await peer.receive()) == len(b"200 ") + MUCH
            await clock.move(50)
        assert server.connections() == 1
    assert rejected("slow reader") == before


async def test_beyond_the_limit_the_longest_silent_connection_is_closed(clock: FakeClock) -> None:
    before = rejected("too many connections")
    async with serving(clock, connections=3) as server:
        peers = []
        for count in range(1, 4):
            peers.append(await server.peer())
            await until(lambda count=count: server.connections() == count)  # type: ignore[misc]
            await clock.move(1)
        peers[0].send(LIVE)
        await peers[0].receive()
        last = await server.peer()
        last.send(LIVE)
        assert await last.receive() == b"200 ok"
        assert await peers[1].is_closed()
        for peer in (peers[0], peers[2]):
            peer.send(LIVE)
            assert await peer.receive() == b"200 ok"
    assert rejected("too many connections") == before + 1


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"GET /healthz HTTP/1.1\r\nhost: a\r\nlong: " + b"a" * 70_000 + b"\r\n\r\n", id="a whole header"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nhost: a\r\nlong: " + b"a" * 200_000, id="a header without an end"),
        pytest.param(b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n", id="a path"),
        pytest.param(b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 40_000 + b"\r\n", id="many headers"),
    ],
)
async def test_oversized_headers_are_refused(clock: FakeClock, said: bytes) -> None:
    before = rejected("headers too large")
    async with serving(clock) as server:
        peer = await server.peer()
        peer.send(said)
        assert await peer.receive() == b"431 the headers are too large"
        assert await peer.is_closed()
    assert rejected("headers too large") == before + 1


async def test_anything_but_http_gets_a_400(clock: FakeClock) -> None:
    async with serving(clock) as server:
        peer = await server.peer()
        peer.send(b"\x16\x03\x01\x00\xa5hello\r\n\r\n")
        assert (await peer.receive()).startswith(b"400 ")
        assert await peer.is_closed()
