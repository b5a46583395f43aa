"""gpushare's routes over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from uvicorn.server import ServerState

from aliquot.endpoints import health
from aliquot.endpoints.asgi import Routes
from aliquot.endpoints.gpushare import GpuShareEndpoint
from aliquot.endpoints.limits import Gate
from tests.integration.room import Room


@asynccontextmanager
async def served(routes: Routes) -> AsyncIterator[str]:
    """Serve routes over HTTP as the Listener does, without its 0.2 s for shutdown."""
    config = uvicorn.Config(
        Gate(routes), http="httptools", ws="none", lifespan="off", log_config=None, access_log=False
    )
    config.load()
    state = ServerState()

    def protocol() -> asyncio.Protocol:
        made: asyncio.Protocol = config.http_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg]
        return made

    async with await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"


def routes_of(room: Room) -> Routes:
    return Routes({**GpuShareEndpoint(room.plane).routes(), **health.routes(room.plane)})
