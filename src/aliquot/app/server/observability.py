"""Health, metrics and profiles: the health port, the debug port, and the extra routes of endpoints."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from aliquot.app.server.authentication import Authentication
from aliquot.app.server.transport import limits
from aliquot.config.server_tree import ServerConfig
from aliquot.control import ControlPlane, Side
from aliquot.endpoints import metrics, side_routes
from aliquot.endpoints.asgi import Routes
from aliquot.endpoints.debug import Debugger
from aliquot.endpoints.endpoint import Table
from aliquot.endpoints.listener import Listener
from aliquot.endpoints.tls import Certificates
from aliquot.errors import BadConfig
from aliquot.side_loop import OtherLoop

_log = structlog.get_logger()

_PROFILED = ("gpushare", "elastic")
"""Endpoints whose originals serve /debug/pprof/ on the same port. gpu-admission has a separate port for it."""
_GRACE_SECONDS = 0.1


def extra_routes(endpoint: str, config: ServerConfig, plane: ControlPlane, debugger: Debugger) -> Table:
    """The routes that an endpoint gets in addition: /metrics if there is no native endpoint, and /debug/pprof/."""
    counted = {} if config.endpoints.native.enabled else metrics.routes(plane)
    return {**counted, **(debugger.routes() if config.listen.profiling and endpoint in _PROFILED else {})}


async def open_debug_port(
    config: ServerConfig,
    debugger: Debugger,
    shown: Certificates | None,
    authentication: Authentication,
    stack: AsyncExitStack,
) -> None:
    """Open gpu-admission's second port. If that fails, the server continues without it, as the original does."""
    endpoint = config.endpoints.admission
    if not (config.listen.profiling and endpoint.enabled and endpoint.debug_port):
        return
    routes = Routes(debugger.routes())
    listener = Listener(
        routes,
        endpoint.debug_address,
        endpoint.debug_port,
        name="debug",
        grace=_GRACE_SECONDS,
        limits=limits(config),
        certificates=shown,
        callers=authentication.for_port("admission", endpoint.debug_address),
    )
    try:
        await stack.enter_async_context(listener)
    except BadConfig as error:
        _log.error("continuing without the debug port", why=str(error))
    else:
        _log.info("listening", endpoint="debug", address=endpoint.debug_address, port=listener.port)


@asynccontextmanager
async def health_port(
    config: ServerConfig,
    plane: ControlPlane,
    side: Side,
    notes: Callable[[], list[str]],
    shown: Certificates | None,
) -> AsyncIterator[Listener | None]:
    """Listen on the side loop, which answers even while the main loop is deciding.

    Callers that may read at the native endpoint may read here. Raises BadConfig if the port is not available.
    """
    if not config.listen.health_port:
        yield None
        return
    here = OtherLoop(asyncio.get_running_loop())
    listener = Listener(
        Routes(side_routes.routes(plane, here, notes)),
        config.listen.address,
        config.listen.health_port,
        name="health",
        grace=_GRACE_SECONDS,
        limits=limits(config),
        certificates=shown,
        callers=Authentication(config, side.client).for_port("native", config.listen.address),
    )
    await side.loop.run(listener.__aenter__())
    _log.info("listening", endpoint="health", address=config.listen.address, port=listener.port)
    try:
        yield listener
    finally:
        await side.loop.run(listener.__aexit__(None, None, None))
