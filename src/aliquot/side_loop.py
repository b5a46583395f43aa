"""An event loop on its own thread, for work that must continue while the main loop is busy."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

_Result = TypeVar("_Result")


class OtherLoop:
    """The event loop of another thread, to run work there and wait for it here."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine there and return its result. Cancelling the call cancels it and waits for its end."""
        here = asyncio.get_running_loop()
        outcome: asyncio.Future[asyncio.Task[_Result]] = here.create_future()
        tasks: list[asyncio.Task[_Result]] = []

        def begin() -> None:
            task = self._loop.create_task(work)
            tasks.append(task)
            task.add_done_callback(lambda ended: here.call_soon_threadsafe(outcome.set_result, ended))

        self._loop.call_soon_threadsafe(begin)
        try:
            ended = await asyncio.shield(outcome)
        except asyncio.CancelledError:
            self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            ended = await outcome
            if not ended.cancelled():
                ended.exception()  # mark it as retrieved, since nobody reads it any more
            raise
        return ended.result()

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Schedule a short callback there."""
        self._loop.call_soon_threadsafe(callback)


class SideLoop(OtherLoop):
    """Its thread runs while the block runs. At the end, work that still runs there is cancelled."""

    def __init__(self, name: str) -> None:
        super().__init__(uvloop.new_event_loop())
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.call_soon(self._loop.stop)
        self._thread.join()

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()
