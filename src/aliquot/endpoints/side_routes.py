"""Routes that run on another thread than the decision loop: liveness, readiness and metrics.

They ask the decision loop, which has a moment to answer. While the loop is busy, its last answer counts. A loop that
has not turned for long is dead.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Generic, TypeVar

from aliquot.control import ControlPlane
from aliquot.endpoints import asgi
from aliquot.endpoints.health import readiness
from aliquot.endpoints.metrics import read, shown
from aliquot.side_loop import OtherLoop

_ANSWER_SECONDS = 0.5
"""kubelet's probes wait for 1 s by default."""
_DEAD_SECONDS = 60.0
_STUCK_SECONDS = 10.0

_Value = TypeVar("_Value")


class LastAnswer(Generic[_Value]):
    """The current or last answer of another loop. `ask` runs there."""

    def __init__(self, there: OtherLoop, ask: Callable[[], Awaitable[_Value]], first: _Value) -> None:
        self._there = there
        self._ask = ask
        self._last = first
        self._asking: asyncio.Future[None] | None = None
        self._work: asyncio.Task[None] | None = None

    async def get(self) -> _Value:
        if self._asking is None or self._asking.done():
            self._asking = self._begin()
        await asyncio.wait([self._asking], timeout=_ANSWER_SECONDS)
        return self._last

    def _begin(self) -> "asyncio.Future[None]":
        here = asyncio.get_running_loop()
        answered: asyncio.Future[None] = here.create_future()

        async def answer() -> None:
            try:
                self._last = await self._ask()
            finally:
                with suppress(RuntimeError):  # the asking loop has ended
                    here.call_soon_threadsafe(answered.set_result, None)

        def begin() -> None:
            self._work = asyncio.get_running_loop().create_task(answer())

        self._there.call_soon(begin)
        return answered


def routes(
    plane: ControlPlane, there: OtherLoop, notes: Callable[[], list[str]] = list
) -> Mapping[tuple[str, str], asgi.Handler]:
    """Routes for a listener on another loop than the plane's, which is `there`."""

    async def current() -> asgi.Response:
        return readiness(plane, notes)

    ready = LastAnswer(there, current, asgi.text("the decision loop has not answered yet", 503))
    counted = LastAnswer(there, lambda: read(plane), None)

    async def healthz(_: asgi.Call) -> asgi.Response:
        silence = plane.pulse.silence()
        return asgi.text("ok") if silence < _DEAD_SECONDS else asgi.text(_silent(silence), 500)

    async def readyz(_: asgi.Call) -> asgi.Response:
        answer, silence = await ready.get(), plane.pulse.silence()
        return answer if silence < _STUCK_SECONDS else asgi.text(_silent(silence), 503)

    async def show(_: asgi.Call) -> asgi.Response:
        await counted.get()
        return shown()

    handlers: dict[str, asgi.Handler] = {
        "/healthz": asgi.OpenHandler(healthz),
        "/readyz": asgi.OpenHandler(readyz),
        "/metrics": show,
    }
    return {(method, path): handler for path, handler in handlers.items() for method in ("GET", "HEAD")}


def _silent(seconds: float) -> str:
    return f"the decision loop has been busy with one task for {seconds:.0f} s"
