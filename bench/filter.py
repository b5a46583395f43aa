"""One extender filter call: read the body, judge every node, write the answer.

The peer does the same work the plain way: the standard library's JSON, and a loop over nodes and cards as the original
gpushare extender has it.
"""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from aliquot.config.server_tree import ServerConfig
from aliquot.control import ControlPlane
from aliquot.endpoints import asgi
from aliquot.endpoints.gpushare import GpuShareEndpoint
from aliquot.kube import Access, Client
from aliquot.model import Charge, Gpu, NodeGpus
from bench.measuring import Row, compare

PEER = "the same answer by a plain Python loop and the standard library's JSON; small clusters show numpy's fixed cost"

_CARDS = 8
_CARD_UNITS = 80
_REASON = "Insufficient GPU Memory in one device"


def run() -> Iterable[Row]:
    for nodes in (10, 100, 1000, 5000):
        yield asyncio.run(_compare(nodes))


async def _compare(count: int) -> Row:
    names = [f"node-{number:04}" for number in range(count)]
    used = {name: [(number + card) * 7 % _CARD_UNITS for card in range(_CARDS)] for number, name in enumerate(names)}
    body = json.dumps({"Pod": _pod(), "Nodes": None, "NodeNames": names}, separators=(",", ":")).encode()
    async with Client(Access("http://127.0.0.1:1")) as client:
        filter_ = GpuShareEndpoint(_plane(client, used)).routes()["POST", "/gpushare-scheduler/filter"]

        def ours() -> bytes:
            return _finish(filter_(asgi.Call(body=body)))

        def peer() -> bytes:
            return _plain_filter(body, used)

        if json.loads(ours()) != json.loads(peer()):
            raise AssertionError("ours and the peer answer differently")
        return compare(f"{count} nodes x {_CARDS} cards, names only", ours, peer)


def _finish(handler: Any) -> bytes:
    """The answer of a handler that waits for nothing, without an event loop between."""
    try:
        handler.send(None)
    except StopIteration as done:
        answer: asgi.Response = done.value
        return answer.body
    raise AssertionError("filter waited for something")


def _pod() -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": "40"}}}
    return {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {"containers": [container]}}


def _plane(client: Client, used: dict[str, list[int]]) -> ControlPlane:
    plane = ControlPlane(client, settings=ServerConfig(mode="observe"))
    plane.nodes.trouble = plane.pods.trouble = ""
    for name, units in used.items():
        gpus = tuple(Gpu(f"{name}/{card}", card, card, "A100", _CARD_UNITS * 1024) for card in range(_CARDS))
        charges = {f"{name}/{card}": Charge(mib=units[card] * 1024) for card in range(_CARDS)}
        plane.cluster.fleet.put(NodeGpus(name, gpus, 1024), charges)
    return plane


def _plain_filter(body: bytes, used: dict[str, list[int]]) -> bytes:
    call = json.loads(body)
    limits = [container["resources"]["limits"] for container in call["Pod"]["spec"]["containers"]]
    need = sum(int(limit["aliyun.com/gpu-mem"]) for limit in limits)
    passed, failed = [], {}
    for name in call["NodeNames"]:
        if any(_CARD_UNITS - taken >= need for taken in used[name]):
            passed.append(name)
        else:
            failed[name] = _REASON
    answer = {
        "Nodes": None,
        "NodeNames": passed,
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": failed or None,
        "Error": "",
    }
    return json.dumps(answer).encode()
