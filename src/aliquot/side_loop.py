"""An event loop on a thread of its own, for what must go on while another loop is busy."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

_Result = TypeVar("_Result")


class Elsewhere:
    """Another thread's event loop, on which work can be done from this one's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run it there and wait here for its result. Cancelled here it is cancelled there, and has ended there when
        this returns."""
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
                ended.exception()  # nobody waits for it any more
            raise
        return ended.result()

    def tell(self, what: Callable[[], object]) -> None:
        """Do something small there, some time."""
        self._loop.call_soon_threadsafe(what)


class SideLoop(Elsewhere):
    """Its thread runs while the block lasts. What is still running there at the end is cancelled."""

    def __init__(self, name: str) -> None:
        super().__init__(uvloop.new_event_loop())
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tell(self._loop.stop)
        self._thread.join()

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()
