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


@pytest.fixture
async def without_cdi(folder: Path, scripted: ScriptedApi, client: Client) -> AsyncIterator[AgentNode]:
    async with AgentNode(folder, scripted, client, with_cdi=False) as running:
        yield running


@pytest.fixture
async def alone(folder: Path, scripted: ScriptedApi, client: Client) -> AsyncIterator[AgentNode]:
    """Without CDI, and with no more than the folder of device plugins, as an original's manifest mounts it."""
    async with AgentNode(folder, scripted, client, with_cdi=False, has_pod_resources=False) as running:
        yield running
