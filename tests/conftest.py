"""Fixtures that every room uses."""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from aliquot.kube import Access, Client
from tests.fakes import FakeClock, ScriptedApi
from tests.real import ApiServer, Real

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
    with tempfile.TemporaryDirectory(prefix="alq-", ignore_cleanup_errors=True) as made:  # gRPC removes its own
        yield Path(made)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--prometheus", action="store_true", help="unpack Debian's Prometheus if it is not in the cache")
    parser.addoption("--real-api", action="store_true", help="run on a real kube-apiserver, not on the embedded one")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "embedded_only(reason): cannot be said of a real API server, and why")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--real-api"):
        chosen = [item for item in items if not item.get_closest_marker("embedded_only")]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


@pytest.fixture(scope="session")
def real_api(request: pytest.FixtureRequest) -> Iterator[ApiServer | None]:
    """One kube-apiserver for the run, if it was asked for."""
    if not request.config.getoption("--real-api"):
        yield None
        return
    with ApiServer.up() as running:
        yield running


@pytest.fixture
async def scripted(real_api: ApiServer | None) -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi(Real(real_api) if real_api else None) as running:
        yield running


@pytest.fixture
async def client(scripted: ScriptedApi) -> AsyncIterator[Client]:
    async with Client(Access(scripted.url)) as opened:
        yield opened
