"""A client of the query API: over HTTP without a name, or straight to its handler as a certain user."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from aliquot.embedded.api import resources
from aliquot.embedded.api.patches import MERGE_PATCH, patch_of
from aliquot.endpoints.asgi import Call, Caller, Routes
from aliquot.endpoints.own_rights import OwnRights
from aliquot.endpoints.query.api import QueryApi
from aliquot.model.load import LOAD, NodeLoad, write_load
from aliquot.model.records import NODE_LEASES
from tests.fakes import until
from tests.integration.endpoints.serving import served
from tests.integration.room import Room

SEED = "/apis/metrics.nvidia.com/v1alpha1"
TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)


class Query:
    def __init__(self, room: Room, api: QueryApi, session: aiohttp.ClientSession, url: str) -> None:
        self.room = room
        self.api = api
        self._session = session
        self._url = url

    async def get(self, path: str, accept: str = "", **query: str) -> Any:
        """The body of a good answer."""
        status, _, body = await self.ask("GET", path, {"Accept": accept} if accept else {}, **query)
        assert status == 200, body
        return body

    async def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, /, **query: str
    ) -> tuple[int, Mapping[str, str], Any]:
        async with self._session.request(method, self._url + path, headers=headers, params=query) as answer:
            text = await answer.text()
            return answer.status, answer.headers, json.loads(text) if text else None

    async def ask_as(self, caller: Caller, method: str, path: str, query: str = "") -> tuple[int, Any]:
        call = Call(path=path, query=query, caller=caller, method=method)
        answered = await self.api.refusal_of(call) or await self.api.answer(call)
        if answered.stream is not None:
            await answered.stream.aclose()
            return answered.status, None
        return answered.status, json.loads(answered.body)

    @asynccontextmanager
    async def watch(self, path: str, accept: str = "", **query: str) -> AsyncIterator["Frames"]:
        headers = {"Accept": accept} if accept else {}
        params = {"watch": "true", **query}
        async with self._session.get(self._url + path, headers=headers, params=params) as answer:
            assert answer.status == 200, await answer.text()
            yield Frames(answer)

    async def settled(self) -> None:
        """Return when the feed has nothing left to do."""
        await self.room.in_sync()
        await until(lambda: self.api.feed.is_complete and not self.api.feed.has_work, "the feed has nothing to do")

    async def heartbeat(self, node: str, renewed: str, load: NodeLoad | None = None, duration: int = 40) -> None:
        """The agent of a node renews its Lease."""
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": node,
                "namespace": NODE_LEASES,
                "annotations": {LOAD: write_load(load)} if load else {},
            },
            "spec": {"holderIdentity": node, "leaseDurationSeconds": duration, "renewTime": renewed},
        }
        registry, leases = self.room.api.registry, self.room.plane.heartbeats.leases
        if leases.get(f"{NODE_LEASES}/{node}") is None:
            if self.room.api.store.get(resources.NAMESPACES.collection, ("", NODE_LEASES)) is None:
                registry.create(resources.NAMESPACES, "", {"metadata": {"name": NODE_LEASES}})
            registry.create(resources.LEASES, NODE_LEASES, body)
        else:
            registry.patch(resources.LEASES, NODE_LEASES, node, patch_of(MERGE_PATCH, body))
        await until(lambda: (seen := leases.get(f"{NODE_LEASES}/{node}")) and seen.spec.renew_time == renewed)
        await self.settled()


class Frames:
    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def next(self) -> Any:
        """The next frame; None at the end."""
        line = await self._answer.content.readline()
        return json.loads(line) if line else None

    async def take(self, count: int) -> list[Any]:
        return [await self.next() for _ in range(count)]


@asynccontextmanager
async def querying(room: Room, instance: int = 7, *, complete: bool = True) -> AsyncIterator[Query]:
    """A query API in front of a room's control plane. Unless it is `complete`, it has not seen the cluster yet."""
    api = QueryApi(room.plane, OwnRights(room.client, room.clock), instance)
    running = asyncio.create_task(api.run() if complete else asyncio.sleep(0))
    try:
        async with served(Routes(api.routes())) as url, aiohttp.ClientSession() as session:
            query = Query(room, api, session, url)
            if complete:
                await query.settled()
            yield query
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
