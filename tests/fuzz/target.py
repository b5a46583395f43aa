"""Every route of every endpoint, called in this process as uvicorn would call it."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from uuid import UUID

import msgspec

from aliquot import metrics
from aliquot.app.server.endpoints import endpoints
from aliquot.config.sections.replicas import LeaseSection
from aliquot.config.server_tree import ServerConfig
from aliquot.control import ControlPlane
from aliquot.embedded.api import resources
from aliquot.endpoints import asgi
from aliquot.endpoints.limits import Gate
from aliquot.kube import Access, Client
from tests.factories import make_cards
from tests.fakes import FakeClock, ScriptedApi
from tests.fuzz import answers, bodies
from tests.fuzz.mutating import wrong
from tests.integration.room import Room

Route = tuple[str, str, str]
"""Endpoint, method, path."""
_FILTER = ("native", "POST", "/aliquot/filter")
_OWN_SHARE = 0.8
"""Of bodies that come from those that the route understands."""
_NEW_SHARE = 0.02
"""Of bodies about pods that nobody knows: enough of them to see whether they are remembered for ever."""
_LONGEST_TAIL = 300


def routes_of(plane: ControlPlane) -> dict[Route, asgi.Handler]:
    found = endpoints(ServerConfig(), plane, None)
    return {
        (endpoint, method, path): handler
        for endpoint, (table, _) in found.items()
        for (method, path), handler in table.items()
        if not isinstance(handler, asgi.SlowHandler)
    }


def all_routes() -> list[Route]:
    """As the endpoints say, without a cluster."""

    async def look() -> list[Route]:
        async with Client(Access("http://127.0.0.1:1")) as client:
            return list(routes_of(ControlPlane(client)))

    return asyncio.run(look())


class Target:
    """Routes in front of a small cluster in which pods of every dialect wait and run."""

    def __init__(self, room: Room, pods: list[dict[str, Any]]) -> None:
        self._routes = routes_of(room.plane)
        self.routes = list(self._routes)
        self._uids = [pod["metadata"]["uid"].encode() for pod in pods]
        self._good = [msgspec.json.encode(body) for pod in pods for body in bodies.good(pod, pods)]
        self._crashes = metrics.REJECTED.labels("crash")
        self._understood: dict[Route, list[bytes]] = {}
        self._kinds: dict[Route, set[str]] = {}

    @classmethod
    @asynccontextmanager
    async def up(cls, api: ScriptedApi, client: Client) -> AsyncIterator["Target"]:
        room = Room(api, client, FakeClock())
        room.plane = ControlPlane(client, settings=ServerConfig(lease=LeaseSection(enabled=False)))
        pods = bodies.pods()
        async with room:
            for name in bodies.NODES:
                await room.add_node(make_cards(name))
            for namespace in sorted({pod["metadata"]["namespace"] for pod in pods} - {"default"}):
                api.registry.create(resources.NAMESPACES, "", {"metadata": {"name": namespace}})
            for pod in pods:
                made = api.registry.create(resources.PODS, pod["metadata"]["namespace"], pod)
                pod["metadata"]["uid"] = made.obj["metadata"]["uid"]
            await room.in_sync()
            yield cls(room, pods)

    async def learn(self, route: Route) -> None:
        """Which good bodies the route understands, and what it then answers."""
        if not isinstance(self._routes[route], asgi.DecisionHandler):
            self._understood[route], self._kinds[route] = [], set()
            return
        for body in self._good:  # a bind is for pods that have passed
            await self.call(_FILTER, body)
        kinds: list[set[str]] = []
        self._understood[route] = understood = []
        for body in self._good:
            status, content = await self.call(route, body)
            if status == 200 and (found := answers.kinds(content)):
                kinds.append(found)
                understood += [body] * _is_well(content)
        self._kinds[route] = set.intersection(*kinds) if kinds else set()
        assert understood, f"{route} understands no body: add one to tests/fuzz/bodies.py"
        assert self._kinds[route], f"{route} answers what no verb does: add its kind to tests/fuzz/answers.py"

    async def check(self, route: Route, body: bytes) -> None:
        """Fails, with the body, unless the answer is one that the route's callers can read."""
        before = self._crashes._value.get()
        await asyncio.sleep(0)  # otherwise nobody else gets to work, and the API server seems to be silent
        status, content = await self.call(route, body)
        told = f"{route} answered {status} {content[:500]!r} to {base64.b64encode(body).decode()}"
        if self._crashes._value.get() != before:
            print(told)
            await self._routes[route](asgi.Call(body=body, path=route[2]))  # raises what was caught
        assert status == 200 or 400 <= status < 500, told
        if status == 200 and self._kinds[route]:
            assert self._kinds[route] & answers.kinds(content), told

    def body(self, route: Route, random: Random) -> bytes:
        own = self._understood[route] if random.random() < _OWN_SHARE else []
        good = random.choice(own or self._good)
        return wrong(self._of_strangers(good, random) if random.random() < _NEW_SHARE else good, random)

    def _of_strangers(self, good: bytes, random: Random) -> bytes:
        """About pods that nobody has ever seen: whoever remembers them all will run out of memory."""
        for uid in self._uids:
            good = good.replace(uid, str(UUID(int=random.getrandbits(128))).encode())
        return good

    async def call(self, route: Route, body: bytes) -> tuple[int, bytes]:
        _, method, path = route
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            sent.append(message)

        gate = Gate(asgi.Routes({(method, path): self._routes[route]}))
        async with asyncio.timeout(10):
            await gate({"type": "http", "method": method, "path": path.replace("*", _tail(body))}, receive, send)
        start, *pieces = sent
        return start["status"], b"".join(piece["body"] for piece in pieces)


def _is_well(content: bytes) -> bool:
    """Whether an answer names no fault."""
    answer = msgspec.json.decode(content)
    return not isinstance(answer, dict) or not any(answer.get(name) for name in ("Error", "errorMessage", "code"))


def _tail(body: bytes) -> str:
    """The last piece of a path, where any will do."""
    return body[:_LONGEST_TAIL].decode(errors="replace").replace("/", "-")
