"""Faults on demand: what goes wrong when it is asked to, and for whom."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api.faults import Faults
from aliquot.embedded.api.resources import PODS as PODS_RESOURCE
from tests.fakes import FakeClock, until
from tests.integration.embedded.client import CONFIG_MAPS, NODES, PODS, Api, binding, config_map, names, pod

pytestmark = pytest.mark.embedded_only("it is about faults on demand")

Gone = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError)


@pytest.fixture
async def cluster(clock: FakeClock) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(timer=clock) as running:
        yield running


async def codes(api: Api, path: str, count: int) -> list[int]:
    return [(await api.get(path)).code for _ in range(count)]


async def test_a_cluster_is_without_fault_unless_told(api: Api, cluster: EmbeddedCluster) -> None:
    assert await codes(api, PODS, 50) == [200] * 50
    assert not cluster.faults.counts


@pytest.mark.parametrize(
    ("faults", "code", "reason"),
    [
        pytest.param(Faults(conflicts=1), 409, "Conflict", id="conflict"),
        pytest.param(Faults(busy=1), 429, "TooManyRequests", id="busy"),
        pytest.param(Faults(errors=1), 500, "InternalError", id="error"),
    ],
)
async def test_a_refused_write_was_not_made(
    api: Api, cluster: EmbeddedCluster, faults: Faults, code: int, reason: str
) -> None:
    cluster.faults.set(faults)
    (await api.post(PODS, pod())).refused(code, reason)
    assert cluster.store.snapshot("pods") == []
    assert cluster.faults.counts.total() == 1


async def test_a_busy_server_says_when_to_come_back(cluster: EmbeddedCluster) -> None:
    cluster.faults.set(Faults(busy=1))
    async with aiohttp.ClientSession() as session, session.get(cluster.url + PODS) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "1")


async def test_reads_do_not_conflict(api: Api, cluster: EmbeddedCluster) -> None:
    cluster.faults.set(Faults(conflicts=0.5, lost_answers=0.5))
    assert await codes(api, PODS, 20) == [200] * 20
    assert not cluster.faults.counts


async def test_a_lost_request_is_not_carried_out_and_a_lost_answer_is(api: Api, cluster: EmbeddedCluster) -> None:
    cluster.faults.set(Faults(lost_requests=1))
    with pytest.raises(Gone):
        await api.post(PODS, pod())
    assert cluster.store.snapshot("pods") == []
    cluster.faults.set(Faults(lost_answers=1))
    with pytest.raises(Gone):
        await api.post(PODS, pod())
    cluster.faults.clear()
    assert names((await api.get(PODS)).expect(200)) == ["web"]
    assert cluster.faults.counts == {"lostRequests": 1, "lostAnswers": 1}


async def test_the_same_seed_gives_the_same_faults(api: Api, cluster: EmbeddedCluster) -> None:
    seen = []
    for seed in (1, 1, 2):
        cluster.faults.set(Faults(errors=0.3, busy=0.3, seed=seed))
        seen.append(await codes(api, PODS, 60))
    assert seen[0] == seen[1] != seen[2]
    assert set(seen[0]) == {200, 429, 500}


@pytest.mark.parametrize(
    ("only", "broken"),
    [
        pytest.param("pods/binding", {"bind"}, id="a-subresource"),
        pytest.param("pods", {"create", "list"}, id="a-resource-without-its-subresources"),
        pytest.param("create pods", {"create"}, id="a-verb-of-a-resource"),
        pytest.param("writes *", {"bind", "create", "other"}, id="every-write"),
        pytest.param("reads *", {"list"}, id="every-read"),
        pytest.param("*", {"bind", "create", "list", "other"}, id="everything"),
    ],
)
async def test_faults_can_be_chosen_by_verb_and_resource(
    api: Api, cluster: EmbeddedCluster, only: str, broken: set[str]
) -> None:
    cluster.registry.create(PODS_RESOURCE, "default", pod())
    cluster.faults.set(Faults(errors=1, only=frozenset({only})))
    answers = {
        "create": await api.post(PODS, pod("other")),
        "bind": await api.post(f"{PODS}/web/binding", binding()),
        "list": await api.get(PODS),
        "other": await api.post(CONFIG_MAPS, config_map()),
    }
    assert {name for name, answer in answers.items() if answer.code == 500} == broken


async def test_requests_wait_as_long_as_asked(api: Api, cluster: EmbeddedCluster, clock: FakeClock) -> None:
    cluster.faults.set(Faults(latency=(2.0, 3.0)))
    asking = asyncio.create_task(api.get(PODS))
    await until(lambda: clock.sleeping, "the request waits")
    assert 2.0 <= clock.asked[-1] <= 3.0
    await clock.move(3.0)
    (await asking).expect(200)


async def test_open_watches_are_cut_on_demand(api: Api, cluster: EmbeddedCluster) -> None:
    async with api.watch(PODS) as pods, api.watch(NODES) as nodes:
        assert cluster.faults.drop_watches() == 2
        for frames in (pods, nodes):
            with pytest.raises(Gone):
                await frames.next()
    assert cluster.faults.drop_watches() == 0
    assert cluster.faults.counts == {"droppedWatches": 2}


async def test_open_watches_are_cut_again_and_again(api: Api, cluster: EmbeddedCluster, clock: FakeClock) -> None:
    cluster.faults.set(Faults(drop_watches_each=5.0))
    for _ in range(3):
        async with api.watch(PODS) as frames:
            await until(lambda: clock.sleeping, "the time is kept")
            await clock.move(5.0)
            with pytest.raises(Gone):
                await frames.next()
    assert cluster.faults.counts == {"droppedWatches": 3}


async def test_an_outage_refuses_connections_until_its_time_is_over(
    api: Api, cluster: EmbeddedCluster, clock: FakeClock
) -> None:
    url = cluster.url
    async with api.watch(PODS) as frames:
        cluster.faults.outage(10)
        with pytest.raises(Gone):
            await frames.next()
    with pytest.raises(aiohttp.ClientConnectorError):
        await api.get(PODS)
    await until(lambda: clock.sleeping, "the time is kept")
    await clock.move(10)
    await until(lambda: cluster.faults.reachable, "the outage is over")
    assert cluster.url == url
    (await api.get(PODS)).expect(200)
    assert cluster.faults.counts["outages"] == 1


async def test_an_outage_can_be_ended_by_hand(api: Api, cluster: EmbeddedCluster) -> None:
    cluster.faults.outage()
    with pytest.raises(aiohttp.ClientConnectorError):
        await api.get(PODS)
    cluster.faults.clear()
    await until(lambda: cluster.faults.reachable, "the server listens")
    (await api.get(PODS)).expect(200)


async def test_a_server_that_hangs_answers_late(api: Api, cluster: EmbeddedCluster) -> None:
    cluster.faults.outage(how="hang")
    asking = asyncio.create_task(api.post(PODS, pod()))
    await asyncio.wait({asking}, timeout=0.1)
    assert not asking.done()
    assert cluster.store.snapshot("pods") == []
    cluster.faults.end_outage()
    (await asking).expect(201)


async def test_leaving_ends_an_outage_too() -> None:
    async with EmbeddedCluster() as cluster:
        cluster.faults.outage()
    with pytest.raises(RuntimeError):
        _ = cluster.url


# -- what makes no sense


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        pytest.param({"errors": 0.6, "busy": 0.6}, "add up to more than 1", id="more-than-all-together"),
        pytest.param({"latency": (2, 1)}, "latency: ", id="latency-upside-down"),
        pytest.param({"only": frozenset({"a b c"})}, "only: 'a b c'", id="only-of-three-words"),
    ],
)
def test_faults_that_make_no_sense_are_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Faults(**fields)
