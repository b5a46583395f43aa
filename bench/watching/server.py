"""The query API of a cluster that another process tells.

It says its port, and then makes as many changes of pods as each line of its input says, one after another. It answers
each line when all are made.
"""

import argparse
import asyncio
import sys
from contextlib import suppress

import uvloop

from aliquot.control import ControlPlane
from aliquot.control.state.events import PodForgotten, PodSeen
from aliquot.endpoints.asgi import Routes
from aliquot.endpoints.listener import Listener
from aliquot.endpoints.own_rights import OwnRights
from aliquot.endpoints.query.api import QueryApi
from aliquot.endpoints.tls import Certificates, Files
from aliquot.kube import Client
from aliquot.kube.access import Access

_PAUSE_SECONDS = 0.02


async def serve(url: str, certificate: str, key: str) -> None:
    async with Client(Access(url)) as client:
        plane = ControlPlane(client)
        api = QueryApi(plane, OwnRights(client, plane.clock))
        shown = Certificates(Files(certificate, key))
        running = [asyncio.create_task(each) for each in (plane.nodes.run(), _after(plane, api))]
        async with Listener(Routes(api.routes()), "127.0.0.1", 0, certificates=shown) as listener:
            while not api.feed.is_complete:
                await asyncio.sleep(0.05)
            print(listener.port, flush=True)
            await _obey(plane)
        for task in running:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _after(plane: ControlPlane, api: QueryApi) -> None:
    """Pods after nodes: reading a pod's placement needs the cards of its node."""
    await plane.nodes.synced.wait()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(plane.pods.run())
        tasks.create_task(api.run())


async def _obey(plane: ControlPlane) -> None:
    """Each change lets a pod end or come back."""
    loop, ended = asyncio.get_running_loop(), False
    pods = plane.pods.all()
    turn = 0
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        count, _, hurry = line.strip().partition(" ")
        for _ in range(int(count)):
            pod = pods[turn // 2 * 7919 % len(pods)]
            plane.cluster.apply(PodSeen(pod) if ended else PodForgotten(pod.metadata.uid))
            plane.touched.emit(pod.spec.node_name)
            ended, turn = not ended, turn + 1
            await asyncio.sleep(0 if hurry else _PAUSE_SECONDS)
        print("done", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("url", "certificate", "key"):
        parser.add_argument(name)
    asked = parser.parse_args()
    uvloop.run(serve(asked.url, asked.certificate, asked.key))
