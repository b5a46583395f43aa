"""Calls are limited in number, size and time."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from aliquot import metrics
from aliquot.endpoints import asgi
from aliquot.endpoints.asgi import PIECE
from aliquot.endpoints.limits import Gate, Limits
from tests.fakes import FakeClock, until

TRIES = 20


class Caller:
    """A request to a gate, and its answer."""

    def __init__(
        self, gate: Gate, path: str, *, headers: Mapping[bytes, bytes] | None = None, reads: bool = True
    ) -> None:
        self._reads = asyncio.Event()
        if reads:
            self.read()
        self._pieces: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[Any] = []
        scope = {"type": "http", "method": "POST", "path": path, "headers": list((headers or {}).items())}
        self.task = asyncio.ensure_future(gate(scope, self._receive, self._send))

    def say(self, body: bytes, *, more: bool = False) -> None:
        self._pieces.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def read(self) -> None:
        """Start to read the answer."""
        self._reads.set()

    def hang_up(self) -> None:
        self._pieces.put_nowait({"type": "http.disconnect"})

    async def answer(self) -> tuple[int, bytes]:
        await until(lambda: len(self.sent) == 2, "an answer")
        return self.sent[0]["status"], self.sent[1]["body"]

    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    async def _receive(self) -> Any:
        return await self._pieces.get()

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        await self._reads.wait()
        if len(self.sent) == 2:
            self.hang_up()  # like uvicorn: reading after the answer reports a disconnect


class Server:
    """A gate in front of handlers that wait for the test."""

    def __init__(self, clock: FakeClock, **limits: Any) -> None:
        self.go_on = asyncio.Event()
        self.done: list[bytes] = []
        routes = asgi.Routes(
            {
                ("POST", "/verb"): asgi.DecisionHandler(self._work, lambda why: asgi.json({"Error": why})),
                ("POST", "/guarded"): asgi.DecisionHandler(
                    self._work, lambda why: asgi.json({"Error": why}), self._refuse
                ),
                ("POST", "/rights"): asgi.OwnRightsHandler(self._work),
                ("POST", "/plain"): self._work,
                ("POST", "/long"): asgi.DecisionHandler(self._tell_much, lambda why: asgi.json({"Error": why})),
                ("POST", "/long/plain"): self._tell_much,
                ("POST", "/broken"): asgi.DecisionHandler(self._break, lambda why: asgi.json({"Error": why})),
                ("POST", "/broken/plain"): self._break,
                ("POST", "/healthz"): asgi.OpenHandler(self._live),
            }
        )
        self.gate = Gate(routes, Limits(**limits), clock)

    def call(self, path: str, body: bytes | None = b"body", *, reads: bool = True) -> Caller:
        caller = Caller(self.gate, path, reads=reads)
        if body is not None:
            caller.say(body)
        return caller

    async def _work(self, call: asgi.Call) -> asgi.Response:
        await self.go_on.wait()
        self.done.append(call.body)
        return asgi.text("done")

    async def _tell_much(self, _: asgi.Call) -> asgi.Response:
        return asgi.Response(bytes(2 * PIECE))

    async def _break(self, _: asgi.Call) -> asgi.Response:
        raise LookupError("a bug")

    async def _refuse(self, _: asgi.Call) -> asgi.Response | None:
        return asgi.text("not you", 403)

    async def _live(self, _: asgi.Call) -> asgi.Response:
        return asgi.text("ok")


@asynccontextmanager
async def watched(server: Server) -> AsyncIterator[Server]:
    watch = asyncio.create_task(server.gate.watch())
    yield server
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


@contextmanager
def rejected(cause: str, times: int = 1) -> Iterator[None]:
    def count() -> float:
        return metrics.REGISTRY.get_sample_value("aliquot_rejected_calls_total", {"cause": cause}) or 0

    before = count()
    yield
    assert count() - before == times


# -- number


async def test_beyond_the_limit_calls_are_asked_to_try_again(clock: FakeClock) -> None:
    server = Server(clock, concurrency=2)
    with rejected("too many calls", 2):
        inside = [server.call("/verb"), server.call("/plain")]
        await until(lambda: server.gate.busy == 2)
        verb, plain = server.call("/verb"), server.call("/plain")
        why = "2 calls are in progress, which is the limit; try again"
        assert await verb.answer() == (200, b'{"Error":"%s"}' % why.encode())
        assert await plain.answer() == (503, why.encode())
        assert plain.headers()[b"retry-after"] == b"1"
    server.go_on.set()
    assert [await one.answer() for one in inside] == [(200, b"done")] * 2
    assert await server.call("/verb").answer() == (200, b"done")
    assert server.gate.busy == 0


async def test_health_is_answered_under_any_load(clock: FakeClock) -> None:
    server = Server(clock, concurrency=1)
    busy = server.call("/verb")
    await until(lambda: server.gate.busy == 1)
    assert await server.call("/healthz").answer() == (200, b"ok")
    server.go_on.set()
    await busy.answer()


async def test_a_refused_caller_takes_no_place_and_its_body_is_not_awaited(clock: FakeClock) -> None:
    server = Server(clock, concurrency=1)
    busy = server.call("/verb")
    await until(lambda: server.gate.busy == 1)
    assert await server.call("/guarded", None).answer() == (403, b"not you")
    server.go_on.set()
    await busy.answer()


async def test_a_route_without_bodies_awaits_none(clock: FakeClock) -> None:
    server = Server(clock)
    server.go_on.set()
    assert await server.call("/rights", None).answer() == (200, b"done")
    assert server.done == [b""]


# -- time


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        pytest.param(
            "/verb", (200, b'{"Error":"Aliquot has not answered within 4 s; the work continues"}'), id="a verb"
        ),
        pytest.param("/plain", (503, b"Aliquot has not answered within 4 s; the work continues"), id="another route"),
    ],
)
async def test_an_overdue_call_is_answered_and_its_handler_continues(
    clock: FakeClock, path: str, answer: tuple[int, bytes]
) -> None:
    with rejected("no answer in time"):
        async with watched(Server(clock, seconds=4.0)) as server:
            caller = server.call(path)
            await until(lambda: server.gate.busy == 1)
            await until(lambda: caller.sent, passing=clock)
            assert await caller.answer() == answer
            assert server.gate.busy == 1, "its handler still works, and so holds a place"
            server.go_on.set()
            await caller.task
    assert (server.done, server.gate.busy, len(caller.sent)) == ([b"body"], 0, 2)


async def test_each_call_has_its_own_deadline(clock: FakeClock) -> None:
    async with watched(Server(clock, seconds=4.0)) as server:
        first = server.call("/verb")
        await until(lambda: server.gate.busy == 1)
        await clock.move(3)
        second = server.call("/verb")
        await until(lambda: server.gate.busy == 2)
        await clock.move(2)
        await first.answer()
        assert second.sent == []
        await clock.move(2)
        await second.answer()
        server.go_on.set()


async def test_a_slow_sender_gets_a_408_and_frees_its_slot(clock: FakeClock) -> None:
    with rejected("slow sender"):
        async with watched(Server(clock, seconds=4.0)) as server:
            caller = server.call("/verb", body=None)
            for _ in range(TRIES):
                caller.say(b"x", more=True)
            await until(lambda: server.gate.busy == 1)
            await until(lambda: caller.sent, passing=clock)
            assert await caller.answer() == (408, b"the body did not arrive within 4 s")
            assert caller.headers()[b"connection"] == b"close"
            await caller.task
    assert (server.done, server.gate.busy) == ([], 0)


# -- answers that are not read


async def test_an_answer_counts_until_it_is_read(clock: FakeClock) -> None:
    """Meanwhile long answers become faults and bodies are refused; short answers are sent."""
    server = Server(clock, bodies=3 * PIECE)
    with rejected("too many bytes to send", 2):
        first = server.call("/long", reads=False)
        await until(lambda: first.sent)
        why = f"calls and answers in progress hold {2 * PIECE} of {3 * PIECE} bytes; try again"
        assert await server.call("/long").answer() == (200, b'{"Error":"%s"}' % why.encode())
        half = why.replace(f"of {3 * PIECE}", f"of {3 * PIECE // 2}")
        assert await server.call("/long/plain").answer() == (503, half.encode())
    assert server.gate.busy == 0
    server.go_on.set()
    assert await server.call("/verb").answer() == (200, b"done")
    with rejected("too many bytes at once"):
        assert b"in progress already hold" in (await server.call("/verb", bytes(PIECE + 1)).answer())[1]
    first.read()
    await first.task
    assert sum(len(piece["body"]) for piece in first.sent[1:]) == 2 * PIECE
    again = server.call("/long")
    await again.task
    assert sum(len(piece["body"]) for piece in again.sent[1:]) == 2 * PIECE


async def test_answers_that_are_no_decisions_leave_half_of_the_bytes_to_schedulers(clock: FakeClock) -> None:
    server = Server(clock, bodies=6 * PIECE)
    server.go_on.set()
    unread = server.call("/long/plain", reads=False)
    await until(lambda: unread.sent)
    with rejected("too many bytes to send"):
        assert (await server.call("/long/plain").answer())[0] == 503
    assert await server.call("/verb", bytes(3 * PIECE)).answer() == (200, b"done")
    unread.read()
    await unread.task


async def test_an_answer_larger_than_the_limit_is_sent_if_it_is_alone(clock: FakeClock) -> None:
    server = Server(clock, bodies=PIECE)
    caller = server.call("/long")
    await caller.task
    assert sum(len(piece["body"]) for piece in caller.sent[1:]) == 2 * PIECE


async def test_an_answer_to_a_disconnected_client_no_longer_counts(clock: FakeClock) -> None:
    server = Server(clock, bodies=3 * PIECE)
    gone = server.call("/long", reads=False)
    await until(lambda: gone.sent)
    gone.task.cancel()
    await asyncio.gather(gone.task, return_exceptions=True)
    caller = server.call("/long")
    await caller.task
    assert sum(len(piece["body"]) for piece in caller.sent[1:]) == 2 * PIECE


# -- size, and what else can be wrong


async def test_a_body_beyond_the_limit_reaches_no_handler(clock: FakeClock) -> None:
    server = Server(clock, body=10)
    server.go_on.set()
    with rejected("body too large"):
        caller = server.call("/verb", body=None)
        caller.say(b"123456", more=True)
        caller.say(b"78901", more=True)
        assert await caller.answer() == (413, b"the body is larger than 10 bytes")
    assert await server.call("/verb", b"1234567890").answer() == (200, b"done")
    assert server.done == [b"1234567890"]


async def test_a_body_announced_as_too_large_is_refused_at_once(clock: FakeClock) -> None:
    server = Server(clock, body=10)
    caller = Caller(server.gate, "/verb", headers={b"content-length": b"11"})
    assert await caller.answer() == (413, b"the body is larger than 10 bytes")


async def test_bodies_are_limited_in_total_and_a_finished_call_makes_room(clock: FakeClock) -> None:
    server = Server(clock, body=10, bodies=15)
    first = server.call("/verb", b"1234567890")
    await until(lambda: server.gate.busy == 1)
    with rejected("too many bytes at once", 2):
        why = "calls and answers in progress already hold the limit of 15 bytes; try again"
        verb, plain = server.call("/verb", b"123456"), server.call("/plain", b"123456")
        assert await verb.answer() == (200, b'{"Error":"%s"}' % why.encode())
        assert await plain.answer() == (503, why.encode())
    small = server.call("/plain", b"12345")
    server.go_on.set()
    assert [await one.answer() for one in (first, small)] == [(200, b"done")] * 2
    assert await server.call("/verb", b"1234567890").answer() == (200, b"done")


async def test_announced_and_abandoned_bytes_do_not_count(clock: FakeClock) -> None:
    server = Server(clock, body=10, bodies=10)
    server.go_on.set()
    promised = Caller(server.gate, "/verb", headers={b"content-length": b"10"})
    await until(lambda: server.gate.busy == 1)
    gone = server.call("/verb", body=None)
    gone.say(b"12345", more=True)
    gone.hang_up()
    await gone.task
    assert await server.call("/verb", b"1234567890").answer() == (200, b"done")
    promised.hang_up()
    await promised.task


async def test_half_a_body_of_a_disconnected_client_reaches_no_handler(clock: FakeClock) -> None:
    server = Server(clock)
    server.go_on.set()
    caller = server.call("/verb", body=None)
    caller.say(b"hal", more=True)
    caller.hang_up()
    await caller.task
    assert (server.done, caller.sent, server.gate.busy) == ([], [], 0)


async def test_a_bug_is_reported_in_the_endpoint_s_format(clock: FakeClock) -> None:
    server = Server(clock)
    with rejected("crash", 2):
        why = b"Aliquot failed to handle this call; see its log"
        assert await server.call("/broken").answer() == (200, b'{"Error":"%s"}' % why)
        assert await server.call("/broken/plain").answer() == (500, why)
    assert server.gate.busy == 0
