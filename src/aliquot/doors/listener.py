"""An HTTP listener: uvicorn on httptools, started and ended with the block that owns it."""

import asyncio
import math
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import uvicorn

from aliquot.doors.asgi import Routes
from aliquot.errors import BadConfig

_GRACE_SECONDS = 3.0
_KEEP_ALIVE_SECONDS = 120
"""Longer than Go's clients keep an idle connection: a POST on one that we just closed fails and is not repeated."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the command, not to one of its listeners."""
        yield


class Listener:
    """Raises BadConfig, naming the port, if it cannot listen. Port 0 takes any free one.

    When its block ends it takes no more calls, and waits `grace` seconds for those in flight.
    """

    def __init__(self, routes: Routes, address: str, port: int, *, grace: float = _GRACE_SECONDS) -> None:
        self._address = address
        self.port = port
        config = uvicorn.Config(
            routes,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=math.ceil(grace),
        )
        self._server = _Server(config)
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Listener":
        bound = self._bind()
        self.port = bound.getsockname()[1]
        self._serving = asyncio.create_task(self._server.serve(sockets=[bound]))
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving

    async def lives(self) -> None:
        """Waits for as long as it serves, and raises if it stops by itself: run it beside what needs the listener."""
        assert self._serving is not None, "only an entered listener serves"
        await asyncio.shield(self._serving)
        raise BadConfig(f"the listener on {self._address}:{self.port} has ended")

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        try:
            return socket.create_server((self._address, self.port), family=family, backlog=1024)
        except OSError as error:
            raise BadConfig(f"cannot listen on {self._address}:{self.port}: {error.strerror}") from error
