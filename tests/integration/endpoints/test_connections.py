"""Connections of those who are slow, silent, many or talk too much."""

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

    def say(self, text: bytes) -> None:
        self.writer.write(text)

    async def hears(self) -> bytes:
        """A whole answer: its body stands at the end, after an empty line."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        (length,) = [int(line.split(b":")[1]) for line in head.splitlines() if line.startswith(b"content-length")]
        return head.splitlines()[0].split(b" ")[1] + b" " + await self.reader.readexactly(length)

    async def is_ended(self) -> bool:
        try:
            return not await self.reader.read()
        except ConnectionResetError:
            return True


class Place:
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
async def place(clock: FakeClock, **limits: int) -> AsyncIterator[Place]:
    async def live(_: asgi.Call) -> asgi.Response:
        return asgi.text("ok")

    async def echo(call: asgi.Call) -> asgi.Response:
        return asgi.Response(call.body)

    async def long(_: asgi.Call) -> asgi.Response:
        return asgi.Response(bytes(MUCH))

    routes = asgi.Routes({("GET", "/healthz"): asgi.OpenHandler(live), ("GET", "/long"): long, ("POST", "/"): echo})
    async with Listener(routes, "127.0.0.1", 0, name="here", limits=Limits(**limits), clock=clock) as listener:
        made = Place(listener.port, clock)
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
async def test_whoever_does_not_end_what_was_begun_is_ended(clock: FakeClock, said: bytes) -> None:
    before = rejected("slow sender")
    async with place(clock, seconds=4) as here:
        peer = await here.peer()
        peer.say(said)
        if said.startswith(LIVE):
            await peer.hears()
        ended = asyncio.ensure_future(peer.is_ended())
        await until(ended.done, passing=clock)
        assert rejected("slow sender") == before + 1
        assert here.connections() == 0


async def test_a_byte_now_and_then_does_not_help(clock: FakeClock) -> None:
    async with place(clock, seconds=4) as here:
        peer = await here.peer()
        ended = asyncio.ensure_future(peer.is_ended())
        began = clock.monotonic()
        for letter in b"POST / HTTP/1.1\r\nhost: abcdefg":
            if ended.done():
                break
            peer.say(bytes([letter]))
            await asyncio.sleep(0.01)
            await clock.move(1)
        await until(ended.done, passing=clock)
        assert clock.monotonic() - began < 20


async def test_a_silent_connection_ends_after_go_s_own_would(clock: FakeClock) -> None:
    async with place(clock) as here:
        peer = await here.peer()
        await until(lambda: here.connections() == 1)
        ended = asyncio.ensure_future(peer.is_ended())
        await clock.move(110)
        assert here.connections() == 1
        await until(ended.done, passing=clock)
        assert here.connections() == 0


async def test_a_connection_may_be_used_again_and_again(clock: FakeClock) -> None:
    async with place(clock, seconds=4) as here:
        peer = await here.peer()
        for _ in range(5):
            peer.say(LIVE)
            assert await peer.hears() == b"200 ok"
            await clock.move(60)
        assert here.connections() == 1


async def test_what_is_too_large_is_read_to_its_end_and_the_connection_stays(clock: FakeClock) -> None:
    async with place(clock, seconds=4, body=10) as here:
        peer = await here.peer()
        peer.say(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 300000\r\n\r\n" + bytes(200_000))
        assert await peer.hears() == b"413 the body is larger than 10 bytes"
        peer.say(bytes(100_000))
        peer.say(LIVE)
        assert await peer.hears() == b"200 ok"
        await clock.move(60)
        assert here.connections() == 1


async def test_whoever_does_not_read_the_answer_is_ended(clock: FakeClock) -> None:
    before = rejected("slow reader")
    async with place(clock, seconds=4) as here:
        peer = await here.peer()
        peer.say(LONG)
        await until(lambda: rejected("slow reader") > before, passing=clock)
        assert here.connections() == 0
    assert rejected("slow reader") == before + 1


async def test_a_little_of_the_answer_now_and_then_does_not_help(clock: FakeClock) -> None:
    before = rejected("slow reader")
    async with place(clock, seconds=4) as here:
        peer = await here.peer()
        peer.say(LONG)
        began = clock.monotonic()
        while rejected("slow reader") == before and clock.monotonic() - began < 100:
            await peer.reader.read(2**20)
            await asyncio.sleep(0.01)
            await clock.move(5)
        assert clock.monotonic() - began < 50
        assert here.connections() == 0
    assert rejected("slow reader") == before + 1


async def test_answers_that_nobody_reads_hold_no_more_than_all_bodies_may(clock: FakeClock) -> None:
    async with place(clock, bodies=MUCH + 2**20) as here:
        slow = await here.peer()
        slow.say(LONG)
        await slow.reader.read(1)
        why = f"calls and answers in progress hold {MUCH} of {MUCH + 2**20} bytes; try again"
        other = await here.peer()
        other.say(LONG)
        assert await other.hears() == b"503 " + why.encode()
        other.say(LIVE)
        assert await other.hears() == b"200 ok"
        slow.writer.transport.abort()
        await until(lambda: here.connections() == 1)
        other.say(LONG)
        assert len(await other.hears()) == len(b"200 ") + MUCH


async def test_whoever_reads_a_long_answer_in_time_stays(clock: FakeClock) -> None:
    before = rejected("slow reader")
    async with place(clock, seconds=60) as here:
        peer = await here.peer()
        for _ in range(2):
            peer.say(LONG)
            assert len(await peer.hears()) == len(b"200 ") + MUCH
            await clock.move(50)
        assert here.connections() == 1
    assert rejected("slow reader") == before


async def test_beyond_the_limit_the_one_that_is_silent_longest_makes_room(clock: FakeClock) -> None:
    before = rejected("too many connections")
    async with place(clock, connections=3) as here:
        peers = []
        for count in range(1, 4):
            peers.append(await here.peer())
            await until(lambda count=count: here.connections() == count)  # type: ignore[misc]
            await clock.move(1)
        peers[0].say(LIVE)
        await peers[0].hears()
        last = await here.peer()
        last.say(LIVE)
        assert await last.hears() == b"200 ok"
        assert await peers[1].is_ended()
        for peer in (peers[0], peers[2]):
            peer.say(LIVE)
            assert await peer.hears() == b"200 ok"
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
async def test_headers_without_measure_are_refused(clock: FakeClock, said: bytes) -> None:
    before = rejected("headers too large")
    async with place(clock) as here:
        peer = await here.peer()
        peer.say(said)
        assert await peer.hears() == b"431 the headers are too large"
        assert await peer.is_ended()
    assert rejected("headers too large") == before + 1


async def test_what_is_no_http_is_told_so(clock: FakeClock) -> None:
    async with place(clock) as here:
        peer = await here.peer()
        peer.say(b"\x16\x03\x01\x00\xa5hello\r\n\r\n")
        assert (await peer.hears()).startswith(b"400 ")
        assert await peer.is_ended()
