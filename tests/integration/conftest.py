from collections.abc import AsyncIterator

import pytest

from aliquot.kube import Client
from tests.fakes import FakeClock, ScriptedApi
from tests.integration.room import Room


@pytest.fixture
async def room(scripted: ScriptedApi, client: Client, clock: FakeClock) -> AsyncIterator[Room]:
    async with Room(scripted, client, clock) as running:
        yield running
