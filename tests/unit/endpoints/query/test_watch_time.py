"""How long a watch lasts that does not say so itself."""

import asyncio
from collections.abc import AsyncGenerator

from aliquot.control import ControlPlane
from aliquot.endpoints.asgi import Call
from aliquot.endpoints.own_rights import OwnRights
from aliquot.endpoints.query.api import QueryApi
from aliquot.kube import Access, Client
from tests.fakes import FakeClock, hurried


async def test_a_watch_without_a_limit_ends_after_half_an_hour_to_an_hour() -> None:
    clock = FakeClock()
    async with Client(Access("http://127.0.0.1:9")) as client:
        api = QueryApi(ControlPlane(client, clock), OwnRights(client, clock))
        api.feed.is_complete = True
        answered = await api.answer(Call(path="/apis/metrics.nvidia.com/v1alpha1/podresources", query="watch=true"))
        assert answered.stream is not None
        began = asyncio.get_running_loop().time()
        await hurried(_ended(answered.stream))
    elapsed = asyncio.get_running_loop().time() - began
    assert 1800 <= elapsed < 3600 + 600, "time jumps by minutes here"


async def _ended(stream: AsyncGenerator[bytes, None]) -> None:
    async for _ in stream:
        pass
