"""What is open beside an endpoint's own routes: the port for health and metrics, /metrics at other endpoints where
there is no native one, and /debug/pprof/."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from aliquot.app.server.guests import Guests
from aliquot.app.server.listening import limits
from aliquot.config import Configuration
from aliquot.control import ControlPlane, Side
from aliquot.endpoints import asides, metrics
from aliquot.endpoints.asgi import Routes
from aliquot.endpoints.debug import Debugger
from aliquot.endpoints.endpoint import Table
from aliquot.endpoints.listener import Listener
from aliquot.endpoints.tls import Certificates
from aliquot.errors import BadConfig
from aliquot.side_loop import Elsewhere

_log = structlog.get_logger()

_DEBUGGED = ("gpushare", "elastic")
"""Their originals have /debug/pprof/ on the same port; gpu-admission has a port for it."""
_GRACE_SECONDS = 0.1


def beside(endpoint: str, tree: Configuration, plane: ControlPlane, debugger: Debugger) -> Table:
    counted = {} if tree.endpoints.native.enabled else metrics.routes(plane)
    return {**counted, **(debugger.routes() if tree.listen.profiling and endpoint in _DEBUGGED else {})}


async def open_debug_port(
    tree: Configuration, debugger: Debugger, shown: Certificates | None, guests: Guests, stack: AsyncExitStack
) -> None:
    """gpu-admission's second port. Where it cannot be had the server goes on without, as the original does."""
    endpoint = tree.endpoints.admission
    if not (tree.listen.profiling and endpoint.enabled and endpoint.debug_port):
        return
    routes = Routes(debugger.routes())
    listener = Listener(
        routes,
        endpoint.debug_address,
        endpoint.debug_port,
        name="debug",
        grace=_GRACE_SECONDS,
        limits=limits(tree),
        certificates=shown,
        callers=guests.of("admission", endpoint.debug_address),
    )
    try:
        await stack.enter_async_context(listener)
    except BadConfig as error:
        _log.error("goes on without the debug port", why=str(error))
    else:
        _log.info("listening", endpoint="debug", address=endpoint.debug_address, port=listener.port)


@asynccontextmanager
async def health_port(
    tree: Configuration,
    plane: ControlPlane,
    side: Side,
    notes: Callable[[], list[str]],
    shown: Certificates | None,
) -> AsyncIterator[Listener | None]:
    """On the side, so that it answers while the loop that decides is busy; whoever may read at the native endpoint may
    read here. Raises BadConfig if it cannot be had."""
    if not tree.listen.health_port:
        yield None
        return
    here = Elsewhere(asyncio.get_running_loop())
    listener = Listener(
        Routes(asides.routes(plane, here, notes)),
        tree.listen.address,
        tree.listen.health_port,
        name="health",
        grace=_GRACE_SECONDS,
        limits=limits(tree),
        certificates=shown,
        callers=Guests(tree, side.client).of("native", tree.listen.address),
    )
    await side.loop.run(listener.__aenter__())
    _log.info("listening", endpoint="health", address=tree.listen.address, port=listener.port)
    try:
        yield listener
    finally:
        await side.loop.run(listener.__aexit__(None, None, None))
