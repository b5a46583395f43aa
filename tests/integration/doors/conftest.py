from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.integration.doors.door import Door
from tests.integration.doors.serving import routes_of, served
from tests.integration.room import Room


@pytest.fixture
async def door(room: Room) -> AsyncIterator[Door]:
    """gpushare's routes on loopback, in front of a control plane at work."""
    async with served(routes_of(room)) as url, aiohttp.ClientSession() as session:
        yield Door(session, url, room)
