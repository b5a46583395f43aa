"""A control plane that has not seen the whole cluster yet must not decide anything."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest

from aliquot.dialects.gpushare import IDX
from aliquot.embedded.api import resources
from aliquot.kube import PODS, Client
from aliquot.model import Pod
from tests.factories import make_cards, node_manifest, pod_manifest
from tests.fakes import FakeClock, ScriptedApi, held, until
from tests.integration.endpoints.endpoint import NOT_PASSED, Endpoint
from tests.integration.endpoints.serving import routes_of, served
from tests.integration.room import Room


@dataclass
class HalfSeen:
    """Nodes are listed, pods are not. `show` releases the list of pods."""

    endpoint: Endpoint
    pod: Pod
    show: asyncio.Event


@pytest.fixture
async def half_seen(scripted: ScriptedApi, client: Client, clock: FakeClock) -> AsyncIterator[HalfSeen]:
    """One card, held by a pod that the control plane has not seen, and a pod that requests it."""
    cards = make_cards(mib=(15360,))
    scripted.registry.create(resources.NODES, "", node_manifest("n1", cards))
    holder = pod_manifest("holder", 10, node="n1", metadata={"annotations": {IDX: "0"}})
    scripted.registry.create(resources.PODS, "default", holder)
    scripted.registry.create(resources.PODS, "default", pod_manifest("asks", 10))
    asks = await client.get(PODS, "asks", "default")
    show = asyncio.Event()
    scripted.script("GET", r"/pods\?", held(asyncio.Event(), show))
    room = Room(scripted, client, clock)
    running = asyncio.create_task(room.plane.run())
    async with served(routes_of(room)) as url, aiohttp.ClientSession() as session:
        await room.plane.nodes.synced.wait()
        yield HalfSeen(Endpoint(session, url, room), asks, show)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_part_held_by_an_unseen_pod_is_not_given_away(half_seen: HalfSeen) -> None:
    endpoint, why = half_seen.endpoint, "Aliquot is out of sync with the API server: has not listed yet"
    assert await endpoint.bind(half_seen.pod) == why
    assert (await endpoint.filter(10, "n1"))["Error"] == why
    assert endpoint.room.api.writes() == []
    half_seen.show.set()
    await until(lambda: not endpoint.room.plane.not_ready())
    assert await endpoint.bind(half_seen.pod) == NOT_PASSED
    assert endpoint.room.api.bindings() == []


async def test_readyz_says_why_answers_cannot_be_trusted(half_seen: HalfSeen) -> None:
    reply = await half_seen.endpoint.send("GET", "/readyz")
    assert (reply.status, reply.text) == (503, "has not listed yet")
    half_seen.show.set()
    await until(lambda: not half_seen.endpoint.room.plane.not_ready())
    assert (await half_seen.endpoint.send("GET", "/readyz")).status == 200
