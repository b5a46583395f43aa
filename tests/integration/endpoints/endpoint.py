"""A scheduler's side of gpushare's routes."""

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import aiohttp
import msgspec

from aliquot.model import Pod
from tests.factories import pod_manifest
from tests.integration.room import Room

FILTER = "/gpushare-scheduler/filter"
BIND = "/gpushare-scheduler/bind"
INSPECT = "/gpushare-scheduler/inspect"
NOT_PASSED = "this server's filter has not passed the pod on node n1 within the last 16 minutes; filter the pod again"


@dataclass(frozen=True)
class Reply:
    status: int
    content_type: str
    body: bytes

    @property
    def json(self) -> Any:
        assert self.content_type in ("application/json", "text/plain"), self
        return msgspec.json.decode(self.body)

    @property
    def text(self) -> str:
        assert self.content_type == "text/plain", self
        return self.body.decode()


class Endpoint:
    def __init__(self, session: aiohttp.ClientSession, url: str, room: Room) -> None:
        self._session = session
        self.url = url
        self.room = room

    async def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        data = None if body is None else BytesIO(body)  # aiohttp warns of large bodies in one piece
        async with self._session.request(method, self.url + path, data=data, headers=headers) as response:
            return Reply(response.status, response.content_type, await response.read())

    async def post(self, path: str, value: Any) -> Reply:
        return await self.send("POST", path, msgspec.json.encode(value))

    async def filter(self, gpu_mem: Any, *names: str, **args: Any) -> Any:
        """Filter these nodes for a pod that requests this much, and return the answer."""
        reply = await self.post(FILTER, {"Pod": pod_manifest(gpu_mem=gpu_mem), "NodeNames": names, **args})
        assert reply.status == 200
        return reply.json

    async def pass_filter(self, pod: Pod, node: str = "n1", path: str = FILTER) -> None:
        """Filter before a bind."""
        await self.post(path, {"Pod": msgspec.to_builtins(pod), "NodeNames": [node]})

    async def bind(self, pod: Pod, node: str = "n1", **fields: str) -> str:
        """The `Error` of a bind call. Filters first, as kube-scheduler does."""
        await self.pass_filter(pod, node)
        reply = await self.post(BIND, bind_args(pod, node) | fields)
        assert reply.status == 200
        assert list(reply.json) == ["Error"]
        error = reply.json["Error"]
        assert isinstance(error, str)
        return error

    def fingerprint(self) -> tuple[Any, ...]:
        """A value that every write changes, and that no refused call may change."""
        ledger, nodes = self.room.plane.cluster.ledger, self.room.plane.nodes.all()
        versions = {node.key: ledger.version(node.key) for node in nodes}
        return self.room.api.store.revision, versions, len(self.room.api.writes())


def bind_args(pod: Pod, node: str = "n1") -> dict[str, str]:
    return {
        "PodName": pod.metadata.name,
        "PodNamespace": pod.metadata.namespace,
        "PodUID": pod.metadata.uid,
        "Node": node,
    }
