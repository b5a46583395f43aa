"""The scheduler's side of any endpoint: pods in any dialect, and calls in both forms and any case."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from aliquot.endpoints.asgi import Routes
from aliquot.endpoints.endpoint import Table
from aliquot.model import NodeGpus
from tests.factories import container_manifest, make_gpu, node_manifest, pod_manifest
from tests.integration.endpoints.endpoint import Endpoint
from tests.integration.endpoints.serving import served
from tests.integration.room import Room

KEYS = ["Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"]

_OF_GIVEN_NAMES = {
    *("labels", "annotations", "limits", "requests", "capacity", "allocatable", "nodeSelector"),
    *("NodeNameToVictims", "NodeNameToMetaVictims"),
}
CASES: Sequence[Any] = (str, str.lower, str.upper, str.swapcase)
"""Ways to write a key that mean the same to Go."""


def pod_asking(limits: Mapping[str, str], *, annotations: Mapping[str, str] | None = None, **fields: Any) -> Any:
    """A pod with one container that requests these; without any it requests no GPU."""
    container = container_manifest(gpu_mem=None) | {"resources": {"limits": dict(limits)}}
    metadata = {"uid": "u-1", **fields.pop("metadata", {}), "annotations": dict(annotations or {})}
    return pod_manifest(containers=[container], metadata=metadata, **fields)


def names_call(pod: Any, names: Sequence[str]) -> dict[str, Any]:
    """A call of a scheduler with nodeCacheCapable."""
    return {"Pod": pod, "Nodes": None, "NodeNames": list(names)}


def odd_node(name: str) -> bytes:
    """A node that no encoder would write exactly like this."""
    whole = msgspec.json.encode(node_manifest(name))
    return b'{ "unknown":[1.50,  1e3,"\\u00e9"],' + whole[1:]


def whole_call(pod: Any, nodes: Sequence[bytes], *, metadata: bytes = b"{}") -> bytes:
    """A call of a scheduler without nodeCacheCapable."""
    parts = msgspec.json.encode(pod), metadata, b", ".join(nodes)
    return b'{"Pod":%b,"Nodes":{"metadata":%b , "items":[%b]},"NodeNames":null}' % parts


def written(value: Any, case: Callable[[str], str], *, is_free: bool = False) -> Any:
    """The same call with its keys in another case, except keys that users choose."""
    if isinstance(value, list):
        return [written(item, case) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key if is_free else case(key): written(inner, case, is_free=not is_free and key in _OF_GIVEN_NAMES)
        for key, inner in value.items()
    }


def cards_of_models(node: str, *models: str) -> NodeGpus:
    gpus = (make_gpu(index, node, model=model) for index, model in enumerate(models))
    return NodeGpus(node, tuple(gpus), 1024)


@asynccontextmanager
async def opened(room: Room, routes: Table) -> AsyncIterator[Endpoint]:
    async with served(Routes(routes)) as url, aiohttp.ClientSession() as session:
        yield Endpoint(session, url, room)
