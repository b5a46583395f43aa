"""A preempting pod evicts pods from one node only, however late our informer cache sees its victims go."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import msgspec
import pytest

from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.endpoints import native
from aliquot.endpoints.asgi import Routes
from aliquot.kube import PODS
from aliquot.model import Pod
from tests.factories import make_cards, pod_manifest
from tests.fakes import answer, until
from tests.integration.endpoints.endpoint import Endpoint, bind_args
from tests.integration.endpoints.serving import served
from tests.integration.room import Room

UNITS = 15
NODES = ("n1", "n2")
ON_CARD_0 = {"annotations": {"ALIYUN_COM_GPU_MEM_IDX": "0"}}


@dataclass(frozen=True)
class Preempting:
    """Two nodes with one card each, both held by a pod of lower priority, and a pod that preempts one of them."""

    endpoint: Endpoint
    preemptor: Pod
    victims: dict[str, Pod]

    @property
    def room(self) -> Room:
        return self.endpoint.room

    def manifest(self) -> dict[str, Any]:
        return dict(self.room.api_pod(self.preemptor))

    async def passed(self) -> list[str]:
        reply = await self.endpoint.post("/aliquot/filter", {"Pod": self.manifest(), "NodeNames": NODES})
        return list(reply.json["NodeNames"])

    async def named(self, *nodes: str) -> set[str]:
        """The nodes with victims in our answer to kube-scheduler's proposal."""
        proposed = {node: {"Pods": [{"UID": self.victims[node].metadata.uid}]} for node in nodes}
        call = {"Pod": self.manifest(), "NodeNameToMetaVictims": proposed}
        reply = await self.endpoint.post("/aliquot/preempt", call)
        return set(reply.json["NodeNameToMetaVictims"]) if reply.status == 200 else set()

    async def bind(self, node: str) -> str:
        reply = await self.endpoint.post("/aliquot/bind", bind_args(self.preemptor, node))
        return str(reply.json["Error"])

    async def nominate(self, node: str) -> None:
        await self.room.report(self.preemptor, nominatedNodeName=node)

    def evict(self, node: str) -> None:
        name = self.victims[node].metadata.name
        self.room.api.registry.delete(resources.PODS, "default", name, DeleteRequest(grace_seconds=0))


@pytest.fixture
async def preempting(room: Room) -> AsyncIterator[Preempting]:
    victims = {}
    for node in NODES:
        await room.add_node(make_cards(node, mib=(UNITS * 1024,)))
        victims[node] = await room.add_pod(f"low-{node}", UNITS, metadata=ON_CARD_0, node=node, priority=1)
    preemptor = await room.add_pod("big", UNITS, priority=100)
    async with served(Routes(native.routes(room.plane))) as url, aiohttp.ClientSession() as session:
        yield Preempting(Endpoint(session, url, room), preemptor, victims)


@pytest.mark.parametrize("nominated", ["n1", ""], ids=["nominated", "not nominated yet"])
async def test_its_node_passes_before_our_cache_has_seen_the_victim_go(preempting: Preempting, nominated: str) -> None:
    assert await preempting.named(*NODES) == set(NODES)
    await preempting.nominate(nominated)
    async with preempting.room.late_informer():
        preempting.evict("n1")
        assert "n1" in await preempting.passed()


async def test_bind_waits_for_our_cache_and_the_other_node_keeps_its_pod(preempting: Preempting) -> None:
    await preempting.named(*NODES)
    await preempting.nominate("n1")
    async with preempting.room.late_informer() as release:
        preempting.evict("n1")
        assert await preempting.passed() == ["n1"]
        binding = asyncio.create_task(preempting.bind("n1"))
        read = f"/pods/{preempting.victims['n1'].metadata.name}"
        await until(
            lambda: any(seen.path.endswith(read) for seen in preempting.room.api.seen), "the victim is asked after"
        )
        assert not binding.done()
        release.set()
        assert await binding == ""
    await preempting.room.in_sync()
    assert preempting.room.used("n1") == {0: UNITS}
    assert preempting.preemptor.metadata.uid in preempting.room.entries("n1")
    assert set(preempting.room.entries("n2")) == {preempting.victims["n2"].metadata.uid}


async def test_it_works_even_if_our_cache_does_not_have_the_pod(preempting: Preempting) -> None:
    """The pod was created, preempted, and its victim went, all before our watch reported anything."""
    async with preempting.room.late_informer() as release:
        manifest = pod_manifest("new", UNITS, priority=100)
        created = preempting.room.api.registry.create(resources.PODS, "default", manifest).obj
        new = replace(preempting, preemptor=msgspec.convert(created, Pod))
        assert await new.named(*NODES) == set(NODES)
        new.evict("n1")
        nominated = {"status": {"nominatedNodeName": "n1"}}
        await new.room.client.patch(PODS, "new", nominated, namespace="default", part="status")
        assert await new.passed() == ["n1"]
        assert await new.named("n2") == set()
        release.set()


async def test_no_other_node_is_offered_while_a_victim_still_counts(preempting: Preempting) -> None:
    await preempting.named(*NODES)
    await preempting.nominate("n1")
    async with preempting.room.late_informer():
        preempting.evict("n1")
        assert await preempting.named("n2") == set()
    await preempting.room.in_sync()
    assert await preempting.named("n2") == {"n2"}, "the cache knows that n1 is empty, and the pod still does not fit"


async def test_nobody_is_evicted_while_the_api_server_cannot_be_asked(preempting: Preempting) -> None:
    await preempting.named(*NODES)
    preempting.room.api.script("GET", "/pods/big$", answer(503))
    assert await preempting.named("n2") == set()


async def test_a_victim_that_was_not_evicted_counts_again(preempting: Preempting) -> None:
    """kube-scheduler may have failed to evict it, or have chosen another node."""
    await preempting.named("n1")
    assert await preempting.passed() == ["n1"]
    assert await preempting.bind("n1") != ""
    assert await preempting.passed() == []
    assert preempting.room.used("n1") == {0: UNITS}


@pytest.mark.parametrize("ending", ["the pod is gone", "time passed", "the pod is bound"])
async def test_nominated_victims_are_forgotten(preempting: Preempting, ending: str) -> None:
    await preempting.named("n1")
    remembered = preempting.room.plane.preemptions
    assert len(remembered) == 1
    if ending == "time passed":
        await preempting.room.clock.move(301)
        assert await preempting.passed() == []
    elif ending == "the pod is gone":
        await preempting.room.delete_pod(preempting.preemptor)
    else:
        await preempting.room.delete_pod(preempting.victims["n1"])
        assert "n1" in await preempting.passed()
        assert await preempting.bind("n1") == ""
        await preempting.room.in_sync()
    assert len(remembered) == 0
