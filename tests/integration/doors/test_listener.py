"""The listener itself: one port, started and ended with its block."""

import aiohttp
import pytest

from aliquot.doors.asgi import Routes
from aliquot.doors.gpushare import GpuShareDoor
from aliquot.doors.listener import Listener
from aliquot.errors import BadConfig
from tests.integration.doors.door import Door
from tests.integration.room import Room


async def test_a_scheduler_is_served_through_the_listener_until_its_block_ends(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod()
    async with Listener(Routes(GpuShareDoor(room.plane).routes()), "127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.port}"
        async with aiohttp.ClientSession() as session:
            door = Door(session, url, room)
            assert (await door.filter(3, "n1"))["NodeNames"] == ["n1"]
            assert await door.bind(pod) == ""
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(url)


async def test_a_port_in_use_is_named() -> None:
    async with Listener(Routes(), "127.0.0.1", 0) as listener:
        with pytest.raises(BadConfig, match=f"cannot listen on 127.0.0.1:{listener.port}: Address already in use"):
            await Listener(Routes(), "127.0.0.1", listener.port).__aenter__()
