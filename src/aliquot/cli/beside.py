"""What is open beside a door's own routes: the port for health and metrics, /metrics at other doors where there is no
native one, and /debug/pprof/."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from aliquot.cli.guests import Guests
from aliquot.cli.listening import limits
from aliquot.config import Configuration
from aliquot.control import ControlPlane, Side
from aliquot.doors import asides, metrics
from aliquot.doors.asgi import Routes
from aliquot.doors.debug import Debugger
from aliquot.doors.door import Table
from aliquot.doors.listener import Listener
from aliquot.doors.tls import Certificates
from aliquot.errors import BadConfig
from aliquot.side_loop import Elsewhere

_log = structlog.get_logger()

_DEBUGGED = ("gpushare", "elastic")
"""Their originals have /debug/pprof/ on the same port; gpu-admission has a port for it."""
_GRACE_SECONDS = 0.1


def beside(door: str, tree: Configuration, plane: ControlPlane, debugger: Debugger) -> Table:
    counted = {} if tree.doors.native.enabled else metrics.routes(plane)
    return {**counted, **(debugger.routes() if tree.listen.profiling and door in _DEBUGGED else {})}


async def open_debug_port(
    tree: Configuration, debugger: Debugger, shown: Certificates | None, guests: Guests, stack: AsyncExitStack
) -> None:
    """gpu-admission's second port. Where it cannot be had the server goes on without, as the original does."""
    door = tree.doors.admission
    if not (tree.listen.profiling and door.enabled and door.debug_port):
        return
    routes = Routes(debugger.routes())
    listener = Listener(
        routes,
        door.debug_address,
        door.debug_port,
        name="debug",
        grace=_GRACE_SECONDS,
        limits=limits(tree),
        certificates=shown,
        callers=guests.of("admission", door.debug_address),
    )
    try:
        await stack.enter_async_context(listener)
    except BadConfig as error:
        _log.error("goes on without the debug port", why=str(error))
    else:
        _log.info("listening", door="debug", address=door.debug_address, port=listener.port)


@asynccontextmanager
async def health_port(
    tree: Configuration,
    plane: ControlPlane,
    side: Side,
    notes: Callable[[], list[str]],
    shown: Certificates | None,
) -> AsyncIterator[Listener | None]:
    """On the side, so that it answers while the loop that decides is busy; whoever may read at the native door may read
    here. Raises BadConfig if it cannot be had."""
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
    _log.info("listening", door="health", address=tree.listen.address, port=listener.port)
    try:
        yield listener
    finally:
        await side.loop.run(listener.__aexit__(None, None, None))
