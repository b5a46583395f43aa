"""Who is let in: calls limited in number, size and time."""

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
    """One request to a gate, and what came of it."""

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
        """From now on."""
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
            self.hang_up()  # as uvicorn: whoever reads on after the answer is told that it is over


class House:
    """A gate before handlers that the test lets go on."""

    def __init__(self, clock: FakeClock, **limits: Any) -> None:
        self.go_on = asyncio.Event()
        self.done: list[bytes] = []
        routes = asgi.Routes(
            {
                ("POST", "/verb"): asgi.DecisionHandler(self._work, lambda why: asgi.json({"Error": why})),
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

    async def _live(self, _: asgi.Call) -> asgi.Response:
        return asgi.text("ok")


@asynccontextmanager
async def watched(house: House) -> AsyncIterator[House]:
    watch = asyncio.create_task(house.gate.watch())
    yield house
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


async def test_beyond_the_limit_calls_are_told_to_come_again(clock: FakeClock) -> None:
    house = House(clock, concurrency=2)
    with rejected("too many calls", 2):
        inside = [house.call("/verb"), house.call("/plain")]
        await until(lambda: house.gate.busy == 2)
        verb, plain = house.call("/verb"), house.call("/plain")
        why = "2 calls are in progress, which is the limit; try again"
        assert await verb.answer() == (200, b'{"Error":"%s"}' % why.encode())
        assert await plain.answer() == (503, why.encode())
        assert plain.headers()[b"retry-after"] == b"1"
    house.go_on.set()
    assert [await one.answer() for one in inside] == [(200, b"done")] * 2
    assert await house.call("/verb").answer() == (200, b"done")
    assert house.gate.busy == 0


async def test_health_is_answered_however_busy_the_server_is(clock: FakeClock) -> None:
    house = House(clock, concurrency=1)
    busy = house.call("/verb")
    await until(lambda: house.gate.busy == 1)
    assert await house.call("/healthz").answer() == (200, b"ok")
    house.go_on.set()
    await busy.answer()


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
async def test_a_call_that_takes_too_long_is_answered_and_goes_on(
    clock: FakeClock, path: str, answer: tuple[int, bytes]
) -> None:
    with rejected("no answer in time"):
        async with watched(House(clock, seconds=4.0)) as house:
            caller = house.call(path)
            await until(lambda: house.gate.busy == 1)
            await until(lambda: caller.sent, passing=clock)
            assert await caller.answer() == answer
            assert house.gate.busy == 1, "its handler still works, and so holds a place"
            house.go_on.set()
            await caller.task
    assert (house.done, house.gate.busy, len(caller.sent)) == ([b"body"], 0, 2)


async def test_each_call_has_its_own_time(clock: FakeClock) -> None:
    async with watched(House(clock, seconds=4.0)) as house:
        first = house.call("/verb")
        await until(lambda: house.gate.busy == 1)
        await clock.move(3)
        second = house.call("/verb")
        await until(lambda: house.gate.busy == 2)
        await clock.move(2)
        await first.answer()
        assert second.sent == []
        await clock.move(2)
        await second.answer()
        house.go_on.set()


async def test_a_slow_sender_is_told_so_and_holds_no_place(clock: FakeClock) -> None:
    with rejected("slow sender"):
        async with watched(House(clock, seconds=4.0)) as house:
            caller = house.call("/verb", body=None)
            for _ in range(TRIES):
                caller.say(b"x", more=True)
            await until(lambda: house.gate.busy == 1)
            await until(lambda: caller.sent, passing=clock)
            assert await caller.answer() == (408, b"the body did not arrive within 4 s")
            assert caller.headers()[b"connection"] == b"close"
            await caller.task
    assert (house.done, house.gate.busy) == ([], 0)


# -- answers that are not read


async def test_an_answer_counts_until_it_is_read(clock: FakeClock) -> None:
    """Beside it a fault goes in place of a long one, and no body is read; short ones go on."""
    house = House(clock, bodies=3 * PIECE)
    with rejected("too many bytes to send", 2):
        first = house.call("/long", reads=False)
        await until(lambda: first.sent)
        why = f"calls and answers in progress hold {2 * PIECE} of {3 * PIECE} bytes; try again"
        assert await house.call("/long").answer() == (200, b'{"Error":"%s"}' % why.encode())
        assert await house.call("/long/plain").answer() == (503, why.encode())
    assert house.gate.busy == 0
    house.go_on.set()
    assert await house.call("/verb").answer() == (200, b"done")
    with rejected("too many bytes at once"):
        assert b"in progress may hold" in (await house.call("/verb", bytes(PIECE + 1)).answer())[1]
    first.read()
    await first.task
    assert sum(len(piece["body"]) for piece in first.sent[1:]) == 2 * PIECE
    again = house.call("/long")
    await again.task
    assert sum(len(piece["body"]) for piece in again.sent[1:]) == 2 * PIECE


async def test_an_answer_that_is_larger_than_all_may_be_is_sent_alone(clock: FakeClock) -> None:
    house = House(clock, bodies=PIECE)
    caller = house.call("/long")
    await caller.task
    assert sum(len(piece["body"]) for piece in caller.sent[1:]) == 2 * PIECE


async def test_an_answer_to_somebody_who_is_gone_counts_no_more(clock: FakeClock) -> None:
    house = House(clock, bodies=3 * PIECE)
    gone = house.call("/long", reads=False)
    await until(lambda: gone.sent)
    gone.task.cancel()
    await asyncio.gather(gone.task, return_exceptions=True)
    caller = house.call("/long")
    await caller.task
    assert sum(len(piece["body"]) for piece in caller.sent[1:]) == 2 * PIECE


# -- size, and what else can be wrong


async def test_a_body_beyond_the_limit_is_refused_and_no_handler_sees_it(clock: FakeClock) -> None:
    house = House(clock, body=10)
    house.go_on.set()
    with rejected("body too large"):
        caller = house.call("/verb", body=None)
        caller.say(b"123456", more=True)
        caller.say(b"78901", more=True)
        assert await caller.answer() == (413, b"the body is larger than 10 bytes")
    assert await house.call("/verb", b"1234567890").answer() == (200, b"done")
    assert house.done == [b"1234567890"]


async def test_a_body_that_is_announced_as_too_large_is_not_waited_for(clock: FakeClock) -> None:
    house = House(clock, body=10)
    caller = Caller(house.gate, "/verb", headers={b"content-length": b"11"})
    assert await caller.answer() == (413, b"the body is larger than 10 bytes")


async def test_bodies_are_limited_in_sum_and_a_call_that_ends_makes_room(clock: FakeClock) -> None:
    house = House(clock, body=10, bodies=15)
    first = house.call("/verb", b"1234567890")
    await until(lambda: house.gate.busy == 1)
    with rejected("too many bytes at once", 2):
        why = "calls and answers in progress may hold 15 bytes at most; try again"
        verb, plain = house.call("/verb", b"123456"), house.call("/plain", b"123456")
        assert await verb.answer() == (200, b'{"Error":"%s"}' % why.encode())
        assert await plain.answer() == (503, why.encode())
    small = house.call("/plain", b"12345")
    house.go_on.set()
    assert [await one.answer() for one in (first, small)] == [(200, b"done")] * 2
    assert await house.call("/verb", b"1234567890").answer() == (200, b"done")


async def test_what_is_announced_or_given_up_takes_no_room(clock: FakeClock) -> None:
    house = House(clock, body=10, bodies=10)
    house.go_on.set()
    promised = Caller(house.gate, "/verb", headers={b"content-length": b"10"})
    await until(lambda: house.gate.busy == 1)
    gone = house.call("/verb", body=None)
    gone.say(b"12345", more=True)
    gone.hang_up()
    await gone.task
    assert await house.call("/verb", b"1234567890").answer() == (200, b"done")
    promised.hang_up()
    await promised.task


async def test_half_a_body_of_somebody_who_is_gone_reaches_no_handler(clock: FakeClock) -> None:
    house = House(clock)
    house.go_on.set()
    caller = house.call("/verb", body=None)
    caller.say(b"hal", more=True)
    caller.hang_up()
    await caller.task
    assert (house.done, caller.sent, house.gate.busy) == ([], [], 0)


async def test_a_bug_is_said_in_the_endpoints_words(clock: FakeClock) -> None:
    house = House(clock)
    with rejected("crash", 2):
        why = b"Aliquot failed to handle this call; see its log"
        assert await house.call("/broken").answer() == (200, b'{"Error":"%s"}' % why)
        assert await house.call("/broken/plain").answer() == (500, why)
    assert house.gate.busy == 0
