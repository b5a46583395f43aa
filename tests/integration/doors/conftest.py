from collections.abc import AsyncIterator

import aiohttp
import pytest

from aliquot.doors import health
from aliquot.doors.asgi import Routes
from aliquot.doors.gpushare import GpuShareDoor
from aliquot.doors.listener import Listener
from tests.integration.doors.door import Door
from tests.integration.room import Room


@pytest.fixture
async def door(room: Room) -> AsyncIterator[Door]:
    """gpushare's routes on loopback, in front of a control plane at work."""
    routes = Routes({**GpuShareDoor(room.plane).routes(), **health.routes(room.plane)})
    async with Listener(routes, "127.0.0.1", 0) as listener, aiohttp.ClientSession() as session:
        yield Door(session, f"http://127.0.0.1:{listener.port}", room)
