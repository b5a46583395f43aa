"""An HTTP listener: uvicorn on httptools, running for as long as its `async with` block."""

import asyncio
import math
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import uvicorn

from aliquot import metrics
from aliquot.clock import Clock, SystemClock
from aliquot.endpoints.asgi import Routes
from aliquot.endpoints.callers import PortCallers
from aliquot.endpoints.connections import KEEP_ALIVE_SECONDS, Connections
from aliquot.endpoints.limits import USUAL, Gate, Limits
from aliquot.endpoints.tls import ServesTls
from aliquot.errors import BadConfig
from aliquot.kube.sockets import notice_lost_peers

_GRACE_SECONDS = 3.0


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, gate: Gate, limits: Limits, tls: ServesTls | None, clock: Clock):
        super().__init__(config)
        self.connections = Connections(config, self.server_state, gate, limits, clock)
        self._tls = tls
        self._handshake_seconds = limits.seconds if tls else None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the command handles signals, not its listeners."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start like uvicorn, with our connections and reloadable certificates."""
        assert sockets is not None, "the listener binds its socket first"
        loop, context = asyncio.get_running_loop(), self._tls.serving if self._tls else None
        make, seconds = self.connections.protocol, self._handshake_seconds
        self.servers = [
            await loop.create_server(make, sock=sock, ssl=context, ssl_handshake_timeout=seconds) for sock in sockets
        ]
        self.started = True


class Listener:
    """An HTTP server on one port; port 0 takes a free port. Raises BadConfig, naming the port, if it cannot listen.

    `setting` names the option that sets the port. When its block ends, it takes no more calls and waits `grace` seconds
    for calls in flight. With certificates it speaks only TLS. With callers it serves only known callers.
    """

    def __init__(
        self,
        routes: Routes,
        address: str,
        port: int,
        *,
        name: str = "",
        setting: str = "",
        grace: float = _GRACE_SECONDS,
        limits: Limits = USUAL,
        certificates: ServesTls | None = None,
        callers: PortCallers | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._address = address
        self.port = port
        self._name = name
        self._setting = setting
        self._gate = Gate(routes, limits, clock, callers)
        config = uvicorn.Config(
            self._gate,
            interface="asgi3",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=math.ceil(grace),
        )
        self._server = _Server(config, self._gate, limits, certificates, clock or SystemClock())
        self._serving: asyncio.Task[None] | None = None
        self._watching: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Listener":
        bound = self._bind()
        self.port = bound.getsockname()[1]
        self._serving = asyncio.create_task(self._server.serve(sockets=[bound]))
        watches = (self._gate.watch(), self._server.connections.watch())
        self._watching = [asyncio.create_task(watch) for watch in watches]
        metrics.IN_FLIGHT.labels(self._name).set_function(lambda: self._gate.busy)
        metrics.STREAMS.labels(self._name).set_function(lambda: self._gate.streams)
        metrics.CONNECTIONS.labels(self._name).set_function(lambda: len(self._server.connections))
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._gate.end_streams()
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        for gauge in (metrics.IN_FLIGHT, metrics.STREAMS, metrics.CONNECTIONS):
            gauge.remove(self._name)

    async def lives(self) -> None:
        """Wait while the listener serves. Raises BadConfig if it stops by itself: run it alongside its dependents."""
        assert self._serving is not None, "use the listener with `async with`"
        await asyncio.shield(self._serving)
        raise BadConfig(f"the listener on {self._where} stopped unexpectedly")

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        both = self._address == "::" and socket.has_dualstack_ipv6()
        try:
            made = socket.create_server((self._address, self.port), family=family, backlog=1024, dualstack_ipv6=both)
        except OSError as error:
            remedy = f"; choose another port with {self._setting}" if self._setting else ""
            raise BadConfig(f"cannot listen on {self._where}: {os.strerror(error.errno or 0)}{remedy}") from error
        notice_lost_peers(made)
        return made

    @property
    def _where(self) -> str:
        return f"[{self._address}]:{self.port}" if ":" in self._address else f"{self._address}:{self.port}"
