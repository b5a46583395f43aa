"""A container runtime."""

from pathlib import Path
from typing import Self

from aliquot.agent import rpc
from aliquot.agent.proto.runtime_pb2 import StatusRequest, StatusResponse


class FakeRuntime:
    """A CRI endpoint that tells the given `info`."""

    def __init__(self, socket: Path, info: dict[str, str]) -> None:
        self._info = info
        methods = {"Status": rpc.unary(self._status, StatusRequest)}
        self._server = rpc.server("runtime.v1.RuntimeService", methods, socket)

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(grace=None)

    async def _status(self, request: StatusRequest, _: object) -> StatusResponse:
        return StatusResponse(info=self._info if request.verbose else {})
