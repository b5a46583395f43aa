import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import aiohttp
import pytest
import uvloop

from tests.integration.doors.door import Door
from tests.integration.doors.serving import routes_of, served
from tests.integration.room import Room


@pytest.fixture
async def door(room: Room) -> AsyncIterator[Door]:
    """gpushare's routes on loopback, in front of a control plane at work."""
    async with served(routes_of(room)) as url, aiohttp.ClientSession() as session:
        yield Door(session, url, room)


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001
    item: pytest.Item,  # noqa: ARG001
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Doors are open on the loop on which the server runs."""
    return {"uvloop": uvloop.new_event_loop}
