"""The one way to be notified: a signal calls its listeners, at once and in order, whenever it is emitted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio

_T = TypeVar("_T")


class Signal(Generic[_T]):
    def __init__(self) -> None:
        self._listeners: list[Callable[[_T], None]] = []

    def subscribe(self, listener: Callable[[_T], None]) -> Callable[[], None]:
        """Returns a function that ends the subscription."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    @contextmanager
    def as_event(self) -> "Iterator[asyncio.Event]":
        """An event that is set by every emission, for a loop that waits for the next one and clears it."""
        import asyncio  # programs without a loop start faster without it

        event = asyncio.Event()
        unsubscribe = self.subscribe(lambda _: event.set())
        try:
            yield event
        finally:
            unsubscribe()

    def emit(self, value: _T) -> None:
        for listener in list(self._listeners):
            listener(value)
