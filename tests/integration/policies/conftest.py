from collections.abc import AsyncIterator

import aiohttp
import pytest

from aliquot.control.admission import ACTIONS, NAMESPACE, manifests
from aliquot.dialects import standard_dialects
from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api import resources
from tests.integration.policies.attempt import parameters
from tests.integration.policies.caller import Caller


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """With Aliquot's namespace and nothing in it."""
    async with EmbeddedCluster() as running:
        running.registry.create(resources.NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
        yield running


@pytest.fixture
async def caller(cluster: EmbeddedCluster) -> AsyncIterator[Caller]:
    async with aiohttp.ClientSession() as session:
        yield Caller(session, cluster.url)


@pytest.fixture
def guarded(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """A cluster whose policies refuse."""
    guard(cluster)
    return cluster


def guard(cluster: EmbeddedCluster, enforce: str = "Deny") -> None:
    """Policies, and what they read."""
    for document in manifests(standard_dialects(), NAMESPACE, ACTIONS[enforce]):
        found = resources.POLICIES if document["kind"] == resources.POLICIES.kind else resources.POLICY_BINDINGS
        cluster.registry.create(found, "", document)
    for document in parameters(NAMESPACE):
        cluster.registry.create(resources.CONFIG_MAPS, NAMESPACE, document)
