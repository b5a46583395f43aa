"""Time, passed in from outside so that tests can control it."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds, for measuring durations."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970, for timestamps."""

    async def sleep(self, seconds: float) -> None: ...


async def came(event: "asyncio.Event", seconds: float, clock: Clock) -> bool:
    """Wait for an event, at most for `seconds`. Returns whether it is set."""
    from aliquot.racing import first_of  # asyncio is only for who waits

    await first_of(event.wait(), clock.sleep(max(0.0, seconds)))
    return event.is_set()


def utc(clock: Clock) -> datetime:
    """The time now."""
    return datetime.fromtimestamp(clock.wall_ns() / 1e9, UTC)


def rfc3339(wall_ns: int, fraction: bool = False) -> str:
    """A timestamp as Kubernetes writes it: in seconds or, with `fraction`, in microseconds."""
    seconds, ns = divmod(wall_ns, 1_000_000_000)
    text = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
    return f"{text}.{ns // 1000:06}Z" if fraction else f"{text}Z"


def seconds_of(timestamp: str | None) -> float | None:
    """Seconds since the epoch; None if there is no readable time."""
    try:
        return datetime.fromisoformat(timestamp or "").timestamp()
    except ValueError:
        return None


async def after(seconds: Callable[[], float], clock: Clock) -> None:
    """Wait for `seconds()`, which may change during the wait. A shorter time takes effect within a second."""
    began = clock.monotonic()
    while (left := began + seconds() - clock.monotonic()) > 0:
        await clock.sleep(min(left, 1.0))


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ns(self) -> int:
        return time.time_ns()

    async def sleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)
