import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import aiohttp
import pytest
import uvloop

from tests.integration.endpoints.endpoint import Endpoint
from tests.integration.endpoints.serving import routes_of, served
from tests.integration.room import Room


@pytest.fixture
async def endpoint(room: Room) -> AsyncIterator[Endpoint]:
    """gpushare's routes on loopback, in front of a running control plane."""
    async with served(routes_of(room)) as url, aiohttp.ClientSession() as session:
        yield Endpoint(session, url, room)


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001
    item: pytest.Item,  # noqa: ARG001
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Endpoints run on the same kind of event loop as the server."""
    return {"uvloop": uvloop.new_event_loop}
