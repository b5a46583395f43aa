"""Fixtures that every room uses."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from aliquot.kube import Access, Client
from tests.fakes import FakeClock, ScriptedApi

settings.register_profile(
    "house",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "soak",
    deadline=None,
    database=None,
    max_examples=int(os.environ.get("ALIQUOT_SOAK_EXAMPLES", "2000")),
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("house")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for unix sockets."""
    made = Path(tempfile.mkdtemp(prefix="alq-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi() as running:
        yield running


@pytest.fixture
async def client(scripted: ScriptedApi) -> AsyncIterator[Client]:
    async with Client(Access(scripted.url)) as opened:
        yield opened
