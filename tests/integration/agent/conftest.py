from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aliquot.kube import Client
from tests.fakes import ScriptedApi
from tests.integration.agent.node import AgentNode


@pytest.fixture
async def node(folder: Path, scripted: ScriptedApi, client: Client) -> AsyncIterator[AgentNode]:
    async with AgentNode(folder, scripted, client) as running:
        yield running
