"""The HTTP client below the Kubernetes client, against servers that say exactly these bytes."""

import asyncio
import gc
import gzip
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from aliquot.kube.errors import NotSent
from aliquot.kube.http import Answer, HttpClient
from tests.fakes import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"
CUT = b""
"""Instead of an answer: the connection ends."""


@dataclass
class RawServer:
    """Gives prepared answers, whoever asks; `asked` has the request and the number of its connection."""

    answers: list[bytes]
    asked: list[tuple[str, int]] = field(default_factory=list)
    url: str = ""
    connections: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        number = self.connections
        while self.answers:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:-2])
            body = await reader.readexactly(int(lines.get("Content-Length", "0")))
            self.asked.append(((head + body).decode(), number))
            if not (answer := self.answers.pop(0)):
                break
            writer.write(answer)
            if b"until the end" in answer:
                break
        writer.close()


@asynccontextmanager
async def raw_server(*answers: bytes) -> AsyncIterator[RawServer]:
    raw = RawServer([*answers])
    listening = await asyncio.start_server(raw.serve, "127.0.0.1")
    async with listening:
        raw.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        try:
            yield raw
        finally:
            for writer in raw.writers:
                if not writer.is_closing():
                    writer.transport.abort()


@asynccontextmanager
async def talking(*answers: bytes, path: str = "") -> AsyncIterator[tuple[RawServer, HttpClient]]:
    async with raw_server(*answers) as raw:
        client = HttpClient(raw.url + path, None)
        yield raw, client
        await client.close()


async def body_of(client: HttpClient, method: str = "GET", sent: bytes | None = None) -> bytes:
    async with client.request(method, "version", headers={}, body=sent) as answer:
        return await answer.read()


async def test_a_request_says_what_was_asked() -> None:
    async with talking(OK, path="/k8s/clusters/c-1/") as (raw, client):
        query, headers = {"fieldSelector": "spec.nodeName=n 1", "watch": "true"}, {"Authorization": "Bearer t"}
        async with client.request("POST", "api/v1/pods", query=query, headers=headers, body=b"{}") as answer:
            assert (answer.status, answer.reason, await answer.read()) == (200, "OK", b"ok")
    first, *lines = raw.asked[0][0].split("\r\n")
    assert first == "POST /k8s/clusters/c-1/api/v1/pods?fieldSelector=spec.nodeName%3Dn%201&watch=true HTTP/1.1"
    assert {f"Host: {raw.url.removeprefix('http://')}", "Authorization: Bearer t", "Content-Length: 2"} <= set(lines)
    assert lines[-1] == "{}"


def zipped(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body


BODIES = [
    pytest.param(OK, id="of a length that is known"),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\no\r\n1\r\nk\r\n0\r\n\r\n", id="in chunks"
    ),
    pytest.param(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, id="after a 1xx"),
    pytest.param(zipped(gzip.compress(b"ok")), id="zipped"),
    pytest.param(zipped(gzip.compress(b"ok")).replace(b"gzip", b"GZip"), id="zipped, in other letters"),
    pytest.param(zipped(gzip.compress(b"o") + gzip.compress(b"k")), id="zipped in two members"),
    pytest.param(b"HTTP/1.0 200 OK\r\nX: until the end\r\n\r\nok", id="until the connection ends"),
]


@pytest.mark.parametrize("answer", BODIES)
async def test_a_body_is_read_however_it_is_sent(answer: bytes) -> None:
    async with talking(answer) as (_, client):
        assert await body_of(client) == b"ok"


async def test_trailers_change_no_header() -> None:
    chunked = b"HTTP/1.1 429 Busy\r\nTransfer-Encoding: chunked\r\nRetry-After: 1\r\n\r\n0\r\nRetry-After: 9\r\n\r\n"
    async with talking(chunked) as (_, client), client.request("GET", "version", headers={}) as answer:
        await answer.read()
        assert answer.headers["retry-after"] == "1"


async def test_a_small_body_does_not_fill_the_memory_when_it_is_inflated() -> None:
    size = 2**25
    bomb = zipped(gzip.compress(bytes(size)))
    async with talking(bomb) as (_, client), client.request("GET", "version", headers={}) as answer:
        sizes = [len(piece) async for piece in answer.pieces()]
    assert sum(sizes) == size
    assert max(sizes) <= 2**18


async def test_a_body_is_no_larger_than_its_reader_allows() -> None:
    answers = zipped(gzip.compress(b"ok"))
    async with talking(answers) as (_, client), client.request("GET", "version", headers={}) as answer:
        with pytest.raises(ConnectionError, match="the answer has more than 1 bytes"):
            await answer.read(1)


async def test_an_answer_without_a_body_is_whole() -> None:
    async with talking(b"HTTP/1.1 204 No Content\r\n\r\n", OK) as (raw, client):
        assert [await body_of(client) for _ in range(2)] == [b"", b"ok"]
    assert raw.connections == 1


async def test_a_large_body_is_read_no_faster_than_it_is_taken() -> None:
    size = 64 * 2**20
    large = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)
    async with talking(large) as (raw, client), client.request("GET", "version", headers={}) as answer:
        pieces = answer.pieces()
        taken = len(await anext(pieces))
        for _ in range(2000):  # the server would have sent all of it by then
            await asyncio.sleep(0)
        assert raw.writers[0].transport.get_write_buffer_size() > size / 2
        assert taken + sum([len(piece) async for piece in pieces]) == size


def test_the_client_runs_on_uvloop() -> None:
    """As in `aliquot server`."""

    async def talk() -> None:
        size = 2**22
        large = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)
        async with talking(large, OK, CUT, OK) as (raw, client):
            assert [len(await body_of(client)) for _ in range(3)] == [size, 2, 2]
        assert raw.connections == 2

    uvloop.run(talk())


FAULTS = [
    pytest.param(CUT, "the connection was closed", id="no answer"),
    pytest.param(b"HTTP/1.1 200 OK\r\nX: until the end", "the connection was closed", id="half a head"),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nX: until the end\r\nContent-Length: 3\r\n\r\nok", "the connection was closed", id="half"
    ),
    pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", r"the answer is not HTTP/1\.1", id="another protocol"),
    pytest.param(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
        r"the answer is not HTTP/1\.1",
        id="an upgrade that nobody asked for",
    ),
    pytest.param(b"HTTP/1.1 200 " + b"x" * 2**20, "head is too large", id="an endless first line"),
    pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2**20, "head is too large", id="an endless header"),
    pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 2**18, "head is too large", id="endless headers"),
    pytest.param(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2**16, "head is too large", id="endless 1xx"),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: x\r\n" * 2**18,
        "head is too large",
        id="endless trailers",
    ),
    pytest.param(zipped(b"ok"), "incorrect header", id="not zipped"),
    pytest.param(zipped(gzip.compress(b"ok") + b"ok"), "incorrect header", id="zipped in part"),
    pytest.param(zipped(gzip.compress(b"ok")[:-1]), "gzip body was cut", id="zipped, half"),
]


@pytest.mark.parametrize(("answer", "text"), FAULTS)
async def test_what_is_no_whole_answer_is_an_error(answer: bytes, text: str) -> None:
    async with talking(answer) as (raw, client):
        with pytest.raises(ConnectionError, match=text):
            await body_of(client)
    assert len(raw.asked) == 1, "a new connection is no reason to ask again"


class Quiet(asyncio.Transport):
    """A transport that only remembers whether it was ended."""

    is_ended = False

    def abort(self) -> None:
        self.is_ended = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@st.composite
def framed(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """An answer, and the body that its reader must see."""
    body = draw(st.binary(max_size=200))
    head, sent = b"HTTP/1.1 200 OK\r\n", body
    if draw(st.booleans()):
        head, sent = head + b"Content-Encoding: gzip\r\n", gzip.compress(body[:9]) + gzip.compress(body[9:])
    informed = b"HTTP/1.1 103 Early Hints\r\nContent-Length: 7\r\n\r\n" * draw(st.integers(0, 2))
    if draw(st.booleans()):
        return informed + head + b"Content-Length: %d\r\n\r\n" % len(sent) + sent, body
    size, extension, trailer = (
        draw(st.integers(1, 99)),
        draw(st.sampled_from([b"", b";a", b';a="b"'])),
        draw(st.sampled_from([b"", b"Content-Encoding: x\r\n"])),
    )
    parts = [sent[start : start + size] for start in range(0, len(sent), size)]
    chunks = b"".join(b"%x%b\r\n%b\r\n" % (len(part), extension, part) for part in parts)
    return informed + head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n" + trailer + b"\r\n", body


async def taken(segments: list[bytes]) -> bytes:
    """What a reader gets of an answer that comes in these segments, after which the connection ends."""
    answer = Answer(Quiet())
    for segment in segments:
        answer.feed(segment)
    answer.end("")
    await answer.begin()
    return await answer.read()


@given(framed(), st.lists(st.integers(0, 600)))
def test_an_answer_is_the_same_in_any_segments(framed: tuple[bytes, bytes], cuts: list[int]) -> None:
    data, body = framed
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    segments = [data[start:end] for start, end in pairwise(places)]
    assert asyncio.run(taken(segments)) == body


@given(framed(), st.data())
def test_an_answer_that_is_cut_anywhere_is_an_error(framed: tuple[bytes, bytes], drawn: st.DataObject) -> None:
    data, _ = framed
    with pytest.raises(ConnectionError):
        asyncio.run(taken([data[: drawn.draw(st.integers(0, len(data) - 1))]]))


async def test_a_header_of_two_lines_is_not_sent() -> None:
    async with talking() as (raw, client):
        with pytest.raises(NotSent, match="the header Authorization has a line break"):
            async with client.request("GET", "version", headers={"Authorization": "Bearer a\r\nb"}):
                pass
    assert raw.connections == 0


async def test_a_path_stays_one_path() -> None:
    path = "api/v1?x#\r\nX: y"
    async with talking(OK, path="/a b%20c") as (raw, client), client.request("GET", path, headers={}):
        pass
    assert raw.asked[0][0].startswith("GET /a%20b%20c/api/v1%3Fx%23%0D%0AX:%20y HTTP/1.1\r\nHost")


async def test_a_query_that_has_no_bytes_is_not_sent() -> None:
    """As the name of a node would be if the environment has no UTF-8."""
    async with talking() as (raw, client):
        with pytest.raises(NotSent, match="no request can be made"):
            async with client.request("GET", "version", query={"fieldSelector": "\udc80"}, headers={}):
                pass
    assert raw.connections == 0


@pytest.mark.parametrize("server", ["http://127.0.0.1:port", "http://", "http://é\N{REPLACEMENT CHARACTER}:1"])
async def test_an_address_that_is_none_cannot_be_reached(server: str) -> None:
    with pytest.raises(NotSent, match="cannot be reached"):
        await body_of(HttpClient(server, None))


async def test_an_address_that_is_not_closed_is_not_asked() -> None:
    with pytest.raises(NotSent, match=r"no request can be made for the API server at .*: Invalid IPv6 URL"):
        await body_of(HttpClient("http://[::1", None))


# -- connections


async def test_a_connection_is_used_again_and_requests_at_the_same_time_have_their_own() -> None:
    async with talking(*[OK] * 5) as (raw, client):
        for _ in range(3):
            await body_of(client)
        assert raw.connections == 1
        await asyncio.gather(body_of(client), body_of(client))
    assert raw.connections == 2


CLOSED = OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(CLOSED, id="the server wants to close it"),
        pytest.param(OK + b"HTTP/1.1 200 OK\r\n", id="the server says more than it was asked"),
    ],
)
async def test_some_connections_are_not_used_again(first: bytes) -> None:
    async with talking(first, OK) as (raw, client):
        assert [await body_of(client) for _ in range(2)] == [b"ok", b"ok"]
    assert raw.connections == 2


async def test_a_connection_whose_answer_was_not_read_is_not_used_again() -> None:
    async with talking(HALF, OK) as (raw, client):
        async with client.request("GET", "version", headers={}) as answer:
            assert answer.status == 200
        await until(lambda: raw.writers[0].transport.is_closing(), "the server knows")
        assert await body_of(client) == b"ok"
    assert raw.connections == 2


async def test_a_connection_that_was_paused_for_a_reader_who_left_is_not_used_again() -> None:
    size = 2**18 + 1
    large = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)
    async with talking(large, OK) as (raw, client):
        async with client.request("GET", "version", headers={}) as answer:
            await until(lambda: answer.is_whole, "all of it has arrived")
        async with asyncio.timeout(5):
            assert await body_of(client) == b"ok"
    assert raw.connections == 2


@pytest.fixture
async def later() -> AsyncIterator[Callable[[float], None]]:
    """Lets the event loop's time jump."""
    loop = asyncio.get_running_loop()
    real = loop.time

    def jump(seconds: float) -> None:
        loop.time = lambda: real() + seconds  # type: ignore[method-assign]

    yield jump
    loop.time = real  # type: ignore[method-assign]


async def test_a_connection_that_was_idle_for_long_is_not_used_again(later: Callable[[float], None]) -> None:
    async with talking(*[OK] * 5) as (raw, client):
        await asyncio.gather(body_of(client), body_of(client))
        later(30)
        await body_of(client)
        later(60)
        await body_of(client)
        assert raw.connections == 2, "the one of 30 s ago"
        await until(lambda: any(writer.transport.is_closing() for writer in raw.writers), "the other one is closed")
        later(120)
        await body_of(client)
    assert raw.connections == 3


async def test_a_read_is_repeated_if_the_server_closes_an_idle_connection_meanwhile() -> None:
    async with talking(OK, CUT, OK) as (raw, client):
        assert [await body_of(client) for _ in range(2)] == [b"ok", b"ok"]
    assert [number for _, number in raw.asked] == [1, 1, 2]


async def test_a_write_is_not_repeated() -> None:
    async with talking(OK, CUT, OK) as (raw, client):
        await body_of(client)
        with pytest.raises(ConnectionError):
            await body_of(client, "POST", b"{}")
    assert len(raw.asked) == 2


async def test_closing_ends_requests_in_progress() -> None:
    async with talking(HALF) as (raw, client):
        reading = asyncio.create_task(body_of(client))
        await until(lambda: raw.asked, "the request has arrived")
        await client.close()
        with pytest.raises(ConnectionError):
            await reading


async def test_closing_ends_a_read_that_would_be_repeated() -> None:
    async with talking(OK, HALF[:9], OK) as (raw, client):
        await body_of(client)
        reading = asyncio.create_task(body_of(client))
        await until(lambda: len(raw.asked) == 2, "the request has arrived")
        await client.close()
        with pytest.raises(ConnectionError, match="we have closed the connection"):
            await reading
    assert raw.connections == 1


async def test_closing_ends_a_request_that_still_connects() -> None:
    async with talking(OK) as (raw, client):
        connecting = asyncio.create_task(body_of(client))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(NotSent, match="the client was closed meanwhile"):
            await connecting
    assert not raw.asked


async def test_closing_does_not_complete_a_body_that_ends_with_the_connection() -> None:
    endless = OK.replace(b"Content-Length: 2\r\n", b"X: y\r\n")
    waiting = [endless, CUT]
    async with talking(*waiting) as (_, client), client.request("GET", "version", headers={}) as answer:
        await client.close()
        with pytest.raises(ConnectionError, match="we have closed the connection"):
            await answer.read()


async def test_a_request_that_is_given_up_leaves_no_connection() -> None:
    async with talking(HALF) as (raw, client):
        reading = asyncio.create_task(body_of(client))
        await until(lambda: raw.asked, "the request has arrived")
        reading.cancel()
        await asyncio.wait({reading})
        await until(lambda: raw.writers[0].transport.is_closing(), "the server knows")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_request_may_be_given_up_at_any_moment(run: Callable[..., None]) -> None:
    async def give_up(after: int) -> None:
        async with talking(OK, OK) as (_, client):
            reading = asyncio.create_task(body_of(client))
            for _ in range(after):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait({reading})
            async with asyncio.timeout(5):
                assert await body_of(client) == b"ok"
                await client.close()

    async def give_up_everywhere() -> None:
        for after in range(20):
            await give_up(after)

    run(give_up_everywhere())


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("answer", [OK, CLOSED, HALF])
async def test_an_answer_is_freed_without_the_garbage_collector(answer: bytes) -> None:
    """With TLS it has a buffer of 256 KiB, and the collector seldom runs in an idle process."""
    async with talking(answer, OK) as (raw, client):
        async with client.request("GET", "version", headers={}) as given:
            kept = weakref.ref(given)
            if answer == HALF:
                raw.writers[0].transport.abort()
                with pytest.raises(ConnectionError):
                    await given.read()
            else:
                await given.read()
        del given
        await body_of(client)
        assert kept() is None
