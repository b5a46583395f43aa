"""Our client and informers, alone."""

import asyncio

import uvloop

from aliquot.kube import NODES, PODS, Access, Client, Informer
from aliquot.model import Node, Pod
from bench.mirroring.listener import Meter, Result


def listen(url: str, events: int) -> Result:
    return uvloop.run(_listen(url, events))


async def _listen(url: str, events: int) -> Result:
    meter = Meter()
    heard = 0
    enough = asyncio.Event()

    def count(old: Pod | None, _: Pod | None) -> None:
        nonlocal heard
        heard += old is not None
        if heard >= events:
            enough.set()

    def ignore(_: Node | None, __: Node | None) -> None:
        pass

    async with Client(Access(url)) as client:
        nodes: Informer[Node] = Informer(client, NODES, ignore)
        pods: Informer[Pod] = Informer(client, PODS, count)
        running = [asyncio.create_task(nodes.run())]
        await nodes.synced.wait()
        running.append(asyncio.create_task(pods.run()))
        await pods.synced.wait()
        meter.synced()
        await enough.wait()
        result = meter.heard(len(nodes.all()), len(pods.all()), events)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return result
