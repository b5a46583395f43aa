"""A device plugin that promises nothing and prepares nothing: what the calls alone cost. Run with kubelet's folder."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import uvloop

from aliquot.agent import rpc
from aliquot.agent.proto import deviceplugin_pb2 as wire

RESOURCE = "idle.example/gpu"
_SOCKET = "idle.sock"
_IDS = 1000
_OPTIONS = wire.DevicePluginOptions(pre_start_required=True)


async def serve(folder: Path) -> None:
    methods = {
        "ListAndWatch": rpc.streaming(_list_and_watch, wire.Empty),
        "Allocate": rpc.unary(_allocate, wire.AllocateRequest),
        "PreStartContainer": rpc.unary(_pre_start, wire.PreStartContainerRequest),
    }
    server = rpc.server("v1beta1.DevicePlugin", methods, folder / _SOCKET)
    await server.start()
    request = wire.RegisterRequest(version="v1beta1", endpoint=_SOCKET, resource_name=RESOURCE, options=_OPTIONS)
    async with rpc.channel(folder / "kubelet.sock") as channel:
        await rpc.call(channel, "/v1beta1.Registration/Register", request, wire.Empty)
    await server.wait_for_termination()


async def _list_and_watch(_: wire.Empty, __: object) -> AsyncIterator[wire.ListAndWatchResponse]:
    yield wire.ListAndWatchResponse(devices=[wire.Device(ID=str(n), health="Healthy") for n in range(_IDS)])
    await asyncio.Event().wait()


async def _allocate(request: wire.AllocateRequest, _: object) -> wire.AllocateResponse:
    return wire.AllocateResponse(
        container_responses=[wire.ContainerAllocateResponse() for _ in request.container_requests]
    )


async def _pre_start(_: wire.PreStartContainerRequest, __: object) -> wire.PreStartContainerResponse:
    return wire.PreStartContainerResponse()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1])))
