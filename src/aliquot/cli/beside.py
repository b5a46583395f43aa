"""What is open beside a door's own routes: /metrics where there is no port for it, and /debug/pprof/."""

from contextlib import AsyncExitStack

import structlog

from aliquot.cli.listening import limits
from aliquot.config import Configuration
from aliquot.control import ControlPlane
from aliquot.doors import metrics
from aliquot.doors.asgi import Routes
from aliquot.doors.debug import Debugger
from aliquot.doors.door import Table
from aliquot.doors.listener import Listener
from aliquot.doors.tls import Certificates
from aliquot.errors import BadConfig

_log = structlog.get_logger()

_DEBUGGED = ("gpushare", "elastic")
"""Their originals have /debug/pprof/ on the same port; gpu-admission has a port for it."""
_GRACE_SECONDS = 0.1


def beside(door: str, tree: Configuration, plane: ControlPlane, debugger: Debugger) -> Table:
    counted = {} if tree.doors.native.enabled else metrics.routes(plane)
    return {**counted, **(debugger.routes() if tree.listen.profiling and door in _DEBUGGED else {})}


async def open_debug_port(
    tree: Configuration, debugger: Debugger, shown: Certificates | None, stack: AsyncExitStack
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
    )
    try:
        await stack.enter_async_context(listener)
    except BadConfig as error:
        _log.error("goes on without the debug port", why=str(error))
    else:
        _log.info("listening", door="debug", address=door.debug_address, port=listener.port)
