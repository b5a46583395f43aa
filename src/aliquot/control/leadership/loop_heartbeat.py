"""Heartbeat of the deciding event loop, for other threads."""

from typing import NoReturn

from aliquot.clock import Clock

_EACH_SECONDS = 0.5


class LoopHeartbeat:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._beat_at = clock.monotonic()

    def silence(self) -> float:
        """Seconds since the loop last ran; slightly more than the time that it has been blocked."""
        return self._clock.monotonic() - self._beat_at

    async def run(self) -> NoReturn:
        while True:
            self._beat_at = self._clock.monotonic()
            await self._clock.sleep(_EACH_SECONDS)
