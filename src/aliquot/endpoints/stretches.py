"""Long work on the event loop in short stretches: schedulers are answered in the pauses."""

from aliquot.clock import Clock


class Stretches:
    def __init__(self, clock: Clock, seconds: float) -> None:
        """Work goes on for that many seconds at a time."""
        self._clock = clock
        self._seconds = seconds
        self._began = clock.monotonic()

    async def pause_if_due(self) -> None:
        if self._clock.monotonic() - self._began > self._seconds:
            await self._clock.sleep(0)
            self._began = self._clock.monotonic()
