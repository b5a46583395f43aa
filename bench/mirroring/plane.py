"""Our whole control plane: the same mirror, and the cluster state of every card kept from it."""

import asyncio

import structlog
import uvloop

from aliquot.config.server_tree import ServerConfig
from aliquot.control import ControlPlane
from aliquot.kube import Access, Client
from bench.mirroring.listener import Meter, Result


def listen(url: str, events: int) -> Result:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    return uvloop.run(_listen(url, events))


async def _listen(url: str, events: int) -> Result:
    meter = Meter()
    heard = 0
    enough = asyncio.Event()

    def count() -> None:
        nonlocal heard
        heard += plane.pods.synced.is_set()
        if heard >= events:
            enough.set()

    async with Client(Access(url)) as client:
        plane = ControlPlane(client, settings=ServerConfig(mode="observe"))
        plane.changed.subscribe(lambda _: count())
        running = asyncio.create_task(plane.run())
        await plane.pods.synced.wait()
        meter.synced()
        await enough.wait()
        nodes, pods = len(plane.nodes.all()), len(plane.pods.all())
        held = sum(1 for node in plane.nodes.all() for _ in plane.cluster.ledger.entries(node.key))
        if held != pods:
            raise AssertionError(f"{pods} pods are placed, and the cluster state knows of {held}")
        result = meter.heard(nodes, pods, events)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return result
