"""Time, handed in from outside so that tests can move it."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
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


def rfc3339(wall_ns: int, fraction: bool = False) -> str:
    """A moment as Kubernetes writes it: in whole seconds, or with microseconds."""
    seconds, ns = divmod(wall_ns, 1_000_000_000)
    text = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
    return f"{text}.{ns // 1000:06}Z" if fraction else f"{text}Z"


async def after(seconds: Callable[[], float], clock: Clock) -> None:
    """Wait for so long, by what is said meanwhile: a shorter time counts within a second."""
    began = clock.monotonic()
    while (left := began + seconds() - clock.monotonic()) > 0:
        await clock.sleep(min(left, 1.0))


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ns(self) -> int:
        return time.time_ns()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
