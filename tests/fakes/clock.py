"""Time that a test moves, and waiting for what must happen."""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

Done = TypeVar("Done")

SECONDS = 30.0
"""How long anything that must happen may take; reached only when a test fails."""
_IDLE_LOOKS = 3
"""So often a server must be seen idle before time goes by."""


class Busy(Protocol):
    """Whoever works on calls."""

    busy: int


async def until(
    condition: Callable[[], object],
    what: str = "",
    *,
    passing: "FakeClock | None" = None,
    between_calls_of: "Busy | None" = None,
) -> None:
    """Return as soon as something that must happen has happened; seconds of `passing` go by meanwhile.

    No time goes by while an API server works on a call: otherwise a busy machine looks like a silent server.
    """
    idle = 0
    try:
        async with asyncio.timeout(SECONDS):
            while not condition():
                await asyncio.sleep(0.002)
                idle = 0 if between_calls_of is not None and between_calls_of.busy else idle + 1
                if passing is not None and (between_calls_of is None or idle >= _IDLE_LOOKS):
                    await passing.move(1)
                    idle = 0
    except TimeoutError:
        raise AssertionError(f"never happened: {what or condition}") from None


async def hurried(waiting: Awaitable[Done]) -> Done:
    """Let the event loop's time jump until something has ended; every time limit on the loop is over then.

    A limit of a few milliseconds would test something else on a machine that stands still for longer than that.
    It needs asyncio's own loop, whose time stays ahead.
    """
    loop = asyncio.get_running_loop()
    real, ahead = loop.time, 0.0
    loop.time = lambda: real() + ahead  # type: ignore[method-assign]
    task = asyncio.ensure_future(waiting)
    while not task.done():
        await asyncio.sleep(0)
        ahead += 60
    return await task


class FakeClock:
    """Time that a test moves by hand; it stands still otherwise. Sleeps no longer than `skip` pass at once."""

    def __init__(self, *, skip: float = 0.0) -> None:
        self._now = 1000.0
        self._skip = skip
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self.asked: list[float] = []
        """Every length of sleep that was asked for."""

    def monotonic(self) -> float:
        return self._now

    def wall_ns(self) -> int:
        return 1_700_000_000_000_000_000 + int(self._now * 1e9)

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        if seconds <= self._skip:
            self._now += max(0.0, seconds)
            await asyncio.sleep(0)
            return
        awake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), awake))
        await awake

    @property
    def sleeping(self) -> int:
        return sum(not awake.done() for _, _, awake in self._sleepers)

    async def move(self, seconds: float) -> None:
        """Let time pass; whoever wakes up runs, and may sleep again, before it passes on."""
        end = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            self._now, _, awake = heapq.heappop(self._sleepers)
            if not awake.done():
                awake.set_result(None)
                await self._let_others_run()
        self._now = end

    async def _let_others_run(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


class BusyClock(FakeClock):
    """Each look at it takes `step` seconds."""

    step = 0.0

    def monotonic(self) -> float:
        self._now += self.step
        return self._now
