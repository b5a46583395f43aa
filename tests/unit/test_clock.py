"""Time from outside: waiting for an event or for a while, whichever comes first."""

import asyncio

import pytest

from aliquot.clock import SystemClock, came, rfc3339
from tests.fakes import FakeClock, until


@pytest.mark.parametrize("set_before", [True, False], ids=["before", "while waiting"])
async def test_an_event_that_comes_in_time_ends_the_wait(clock: FakeClock, set_before: bool) -> None:
    event = asyncio.Event()
    if set_before:
        event.set()
    waiting = asyncio.create_task(came(event, 5, clock))
    if not set_before:
        await until(lambda: clock.sleeping)
        event.set()
    assert await waiting is True
    await until(lambda: not clock.sleeping, "nobody sleeps on")


async def test_time_that_runs_out_ends_the_wait(clock: FakeClock) -> None:
    waiting = asyncio.create_task(came(asyncio.Event(), 5, clock))
    await until(lambda: clock.sleeping)
    await clock.move(4.9)
    assert not waiting.done()
    await clock.move(0.1)
    assert await waiting is False


@pytest.mark.parametrize("seconds", [0, -1])
async def test_no_time_at_all_is_no_wait(seconds: float) -> None:
    assert await came(asyncio.Event(), seconds, SystemClock()) is False


async def test_a_wait_that_is_cancelled_leaves_nothing_behind(clock: FakeClock) -> None:
    waiting = asyncio.create_task(came(asyncio.Event(), 5, clock))
    await until(lambda: clock.sleeping)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await until(lambda: not clock.sleeping, "nobody sleeps on")


def test_the_system_s_clock_runs() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.wall_ns() > 1_700_000_000_000_000_000


@pytest.mark.parametrize(
    ("wall_ns", "seconds", "microseconds"),
    [
        pytest.param(0, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z", id="the first"),
        pytest.param(
            1_700_000_000_999_999_999,
            "2023-11-14T22:13:20Z",
            "2023-11-14T22:13:20.999999Z",
            id="the end of a second, which has not come yet",
        ),
        pytest.param(-1, "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.999999Z", id="before the first"),
    ],
)
def test_moments_are_written_as_kubernetes_does(wall_ns: int, seconds: str, microseconds: str) -> None:
    assert (rfc3339(wall_ns), rfc3339(wall_ns, fraction=True)) == (seconds, microseconds)
