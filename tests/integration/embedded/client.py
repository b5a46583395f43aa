"""A bare HTTP client for the embedded cluster, and objects with defaults."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import aiohttp
import msgspec

from tests.fakes import SECONDS

JSON = "application/json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@dataclass(frozen=True)
class Answer:
    code: int
    body: Any
    media: str

    def expect(self, code: int) -> Any:
        assert self.code == code, self.body
        return self.body

    def refused(self, code: int, reason: str) -> str:
        """The message of the Status that a refusal must be."""
        assert (self.code, self.body["kind"], self.body["status"]) == (code, "Status", "Failure"), self.body
        assert (self.body["code"], self.body.get("reason", "")) == (code, reason)
        message = self.body["message"]
        assert isinstance(message, str)
        return message

    def unreadable(self) -> None:
        """A real server says by turns that it cannot read a body, and that what it read is invalid."""
        assert (self.code, self.body.get("reason")) in ((400, "BadRequest"), (422, "Invalid")), self.body


class Frames:
    """The frames of an open watch."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    async def next(self) -> Any:
        """The next frame; None at the end."""
        async with asyncio.timeout(SECONDS):
            line = await self._content.readline()
        return msgspec.json.decode(line) if line else None

    async def names(self, count: int) -> list[tuple[str, str]]:
        frames = [await self.next() for _ in range(count)]
        return [(frame["type"], frame["object"]["metadata"]["name"]) for frame in frames]


class Api:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self._url = url

    async def get(self, path: str, accept: str = JSON, **query: str) -> Answer:
        return await self._send("GET", path, query, None, {"Accept": accept})

    async def post(self, path: str, obj: Any, **query: str) -> Answer:
        return await self._send("POST", path, query, msgspec.json.encode(obj), {"Content-Type": JSON})

    async def put(self, path: str, obj: Any, **query: str) -> Answer:
        return await self._send("PUT", path, query, msgspec.json.encode(obj), {"Content-Type": JSON})

    async def patch(self, path: str, patch: Any, kind: str = "merge-patch+json", **query: str) -> Answer:
        headers = {"Content-Type": f"application/{kind}"}
        return await self._send("PATCH", path, query, msgspec.json.encode(patch), headers)

    async def delete(self, path: str, options: Any = None, **query: str) -> Answer:
        body = None if options is None else msgspec.json.encode(options)
        return await self._send("DELETE", path, query, body, {"Content-Type": JSON})

    async def raw(self, method: str, path: str, body: bytes, media: str) -> Answer:
        return await self._send(method, path, {}, BytesIO(body), {"Content-Type": media})

    @asynccontextmanager
    async def watch(self, path: str, accept: str = JSON, **query: str) -> AsyncIterator[Frames]:
        params = {"watch": "true", **query}
        headers = {"Accept": accept}
        async with self.session.get(self._url + path, params=params, headers=headers) as response:
            assert response.status == 200, await response.text()
            yield Frames(response.content)

    async def _send(
        self, method: str, path: str, query: dict[str, str], body: bytes | BytesIO | None, headers: dict[str, str]
    ) -> Answer:
        url = self._url + path
        async with self.session.request(method, url, params=query, data=body, headers=headers) as response:
            content = await response.read()
            is_json = response.content_type == JSON
            decoded = msgspec.json.decode(content) if is_json else content
            return Answer(response.status, decoded, response.headers["Content-Type"])


def container(name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "registry.example/app:1", **fields}


def pod(name: str = "web", *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container()], **spec}}


def config_map(name: str = "settings", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def binding(name: str = "web", node: str = "node-1", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"kind": "Node", "name": node},
    }


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]
