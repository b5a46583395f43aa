"""What ends a trouble, and when it is due."""

import time
from collections.abc import Awaitable, Callable

Undo = Callable[[], Awaitable[None]]


class Schedule:
    def __init__(self) -> None:
        self._entries: list[tuple[float, Undo]] = []

    def later(self, seconds: float, undo: Undo) -> None:
        self._entries.append((time.monotonic() + seconds, undo))

    async def do_what_is_due(self, *, everything: bool = False) -> None:
        now = time.monotonic()
        due = [entry for entry in self._entries if everything or entry[0] <= now]
        self._entries = [entry for entry in self._entries if entry not in due]
        for _, undo in due:
            await undo()
