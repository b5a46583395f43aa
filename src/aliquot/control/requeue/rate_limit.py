"""Rate limit for writes: a burst, then a number per second."""

from aliquot.clock import Clock


class RateLimit:
    def __init__(self, clock: Clock, *, at_once: int, per_second: float) -> None:
        self._clock = clock
        self._at_once = at_once
        self._per_second = per_second
        self._left = float(at_once)
        self._counted_at = clock.monotonic()

    def left(self) -> int:
        now = self._clock.monotonic()
        self._left = min(self._at_once, self._left + (now - self._counted_at) * self._per_second)
        self._counted_at = now
        return int(self._left)

    def spend(self, count: int) -> None:
        """`count` is at most `left()`."""
        self._left -= count

    def next_in(self) -> float:
        """Seconds until a write is allowed; 0 if now."""
        return 0.0 if self.left() else (1 - self._left) / self._per_second
