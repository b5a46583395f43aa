"""Time, handed in from outside so that tests can move it."""

import asyncio
import time
from typing import Protocol

from aliquot.racing import first_of


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds for measuring how long something takes."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970, for what people and other programs read."""

    async def sleep(self, seconds: float) -> None: ...


async def came(event: asyncio.Event, seconds: float, clock: Clock) -> bool:
    """Wait for an event, at most so long; returns whether it came."""
    await first_of(event.wait(), clock.sleep(max(0.0, seconds)))
    return event.is_set()


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ns(self) -> int:
        return time.time_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
