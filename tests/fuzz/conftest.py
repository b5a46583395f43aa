import logging
from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from aliquot.kube import Client
from tests.fakes import ScriptedApi
from tests.fuzz.target import Target


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Each refused bind is a line."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


@pytest.fixture
async def target(scripted: ScriptedApi, client: Client) -> AsyncIterator[Target]:
    async with Target.up(scripted, client) as made:
        yield made
