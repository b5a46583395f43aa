from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime
from random import Random
from typing import cast

import aiohttp
import pytest

from aliquot.embedded import EmbeddedCluster
from tests.integration.embedded.client import Api
from tests.real import ApiServer, Real

NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
async def cluster(real_api: ApiServer | None) -> AsyncIterator[EmbeddedCluster]:
    """Or a real API server: then only `url`, and of `registry` and `store` what tests/real/by_hand.py has."""
    if real_api is not None:
        with closing(Real(real_api)) as behind:
            yield cast(EmbeddedCluster, behind)
        return
    async with EmbeddedCluster(clock=lambda: NOW, random=Random(1), log_capacity=64) as running:
        yield running


@pytest.fixture
async def api(cluster: EmbeddedCluster) -> AsyncIterator[Api]:
    async with aiohttp.ClientSession() as session:
        yield Api(session, cluster.url)
