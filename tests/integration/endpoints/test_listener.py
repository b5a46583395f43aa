"""The listener: one port, open for as long as its block."""

import asyncio
import re
import socket

import aiohttp
import pytest

from aliquot.endpoints.asgi import Routes
from aliquot.endpoints.gpushare import GpuShareEndpoint
from aliquot.endpoints.listener import Listener
from aliquot.errors import BadConfig
from tests.integration.endpoints.endpoint import Endpoint
from tests.integration.room import Room


async def test_a_scheduler_is_served_through_the_listener_until_its_block_ends(room: Room) -> None:
    await room.add_node()
    pod = await room.add_pod()
    async with Listener(Routes(GpuShareEndpoint(room.plane).routes()), "127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.port}"
        async with aiohttp.ClientSession() as session:
            endpoint = Endpoint(session, url, room)
            assert (await endpoint.filter(3, "n1"))["NodeNames"] == ["n1"]
            assert await endpoint.bind(pod) == ""
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(url)


async def test_a_listener_that_stops_raises_for_its_dependents() -> None:
    async with Listener(Routes(), "127.0.0.1", 0) as listener:
        living = asyncio.create_task(listener.lives())
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{listener.port}") as response:
            assert response.status == 404
        assert not living.done()
    with pytest.raises(BadConfig, match=f"the listener on 127.0.0.1:{listener.port} stopped unexpectedly"):
        await living


async def test_cancelling_the_wait_does_not_stop_the_listener() -> None:
    async with Listener(Routes(), "127.0.0.1", 0) as listener:
        living = asyncio.create_task(listener.lives())
        await asyncio.sleep(0)
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{listener.port}") as response:
            assert response.status == 404


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
async def test_an_ipv6_address_works() -> None:
    async with (
        Listener(Routes(), "::1", 0) as listener,
        aiohttp.ClientSession() as session,
        session.get(f"http://[::1]:{listener.port}") as response,
    ):
        assert response.status == 404


async def test_a_port_in_use_is_named() -> None:
    async with Listener(Routes(), "127.0.0.1", 0) as listener:
        with pytest.raises(BadConfig, match=f"cannot listen on 127.0.0.1:{listener.port}: Address already in use"):
            await Listener(Routes(), "127.0.0.1", listener.port).__aenter__()


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
async def test_a_port_in_use_is_named_with_its_ipv6_address_in_brackets() -> None:
    async with Listener(Routes(), "::1", 0) as listener:
        with pytest.raises(BadConfig, match=re.escape(f"cannot listen on [::1]:{listener.port}: Address already")):
            await Listener(Routes(), "::1", listener.port).__aenter__()
