from collections.abc import AsyncIterator
from datetime import UTC, datetime
from random import Random

import aiohttp
import pytest

from aliquot.embedded import EmbeddedCluster
from tests.integration.embedded.client import Api

NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(clock=lambda: NOW, random=Random(1), log_capacity=64) as running:
        yield running


@pytest.fixture
async def api(cluster: EmbeddedCluster) -> AsyncIterator[Api]:
    async with aiohttp.ClientSession() as session:
        yield Api(session, cluster.url)
