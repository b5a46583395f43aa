"""Time, handed in from outside so that tests can move it."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds for measuring how long something takes."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970, for what people and other programs read."""

    async def sleep(self, seconds: float) -> None: ...


async def came(event: asyncio.Event, seconds: float, clock: Clock) -> bool:
    """Wait for an event, at most so long; returns whether it came."""
    waiting = asyncio.ensure_future(event.wait())
    sleeping = asyncio.ensure_future(clock.sleep(max(0.0, seconds)))
    try:
        await asyncio.wait({waiting, sleeping}, return_when=asyncio.FIRST_COMPLETED)
        return event.is_set()
    finally:
        waiting.cancel()
        sleeping.cancel()


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ns(self) -> int:
        return time.time_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
