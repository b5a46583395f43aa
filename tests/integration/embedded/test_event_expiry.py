"""Events do not stay for ever."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from aliquot.apiserver.objects import timestamp
from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api import resources
from tests.fakes import FakeClock, until
from tests.integration.embedded.conftest import NOW

pytestmark = pytest.mark.embedded_only("a real server does it by a lease in its store")


@pytest.fixture
async def cluster(clock: FakeClock) -> AsyncIterator[EmbeddedCluster]:
    def now() -> Any:
        return NOW + timedelta(seconds=clock.monotonic())

    async with EmbeddedCluster(clock=now, timer=clock) as running:
        yield running


def names(cluster: EmbeddedCluster) -> list[str]:
    return [stored.obj["metadata"]["name"] for stored in cluster.store.snapshot(resources.EVENTS.collection)]


async def test_an_event_goes_an_hour_after_it_was_last_written(cluster: EmbeddedCluster, clock: FakeClock) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": "default"}
    for name in ("once", "again"):
        cluster.registry.create(
            resources.EVENTS, "default", {"metadata": {"name": name}, "involvedObject": about, "reason": "Told"}
        )
    await until(lambda: clock.sleeping, "their time is known")
    await clock.move(1800)
    later = {"lastTimestamp": timestamp(cluster.registry.clock())}
    cluster.registry.patch(resources.EVENTS, "default", "again", lambda event: {**event, **later})
    await until(lambda: clock.sleeping)
    await clock.move(1801)
    await until(lambda: names(cluster) == ["again"], "the first has gone")
    await clock.move(1800)
    await until(lambda: names(cluster) == [], "the other too")
