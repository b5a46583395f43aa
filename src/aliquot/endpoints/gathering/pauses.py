"""Where a long piece of work lets others go first."""

from collections.abc import Generator, Iterator
from typing import TypeVar

from aliquot.clock import Clock

_Result = TypeVar("_Result")

_STRETCH_SECONDS = 0.004


class Pauses:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()

    def __call__(self) -> Iterator[None]:
        """Yields once if it is time."""
        if self._clock.monotonic() - self._began > _STRETCH_SECONDS:
            yield
            self._began = self._clock.monotonic()

    def between(self, steps: Generator[None, None, _Result]) -> Generator[None, None, _Result]:
        """Do work that comes in steps, with pauses between them."""
        while True:
            try:
                next(steps)
            except StopIteration as done:
                result: _Result = done.value
                return result
            yield from self()
