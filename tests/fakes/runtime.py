"""A container runtime."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from aliquot.agent import rpc
from aliquot.agent.proto import runtime_pb2 as wire


class FakeRuntime:
    """A CRI endpoint that tells the given `info`, and of pods by their UIDs in which state a container of theirs is."""

    def __init__(self, socket: Path, info: dict[str, str], containers: Mapping[str, str] | None = None) -> None:
        self._info = info
        self._containers = containers if containers is not None else {}
        methods = {
            "Status": rpc.unary(self._status, wire.StatusRequest),
            "ListContainers": rpc.unary(self._list, wire.ListContainersRequest),
        }
        self._server = rpc.server("runtime.v1.RuntimeService", methods, socket)

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(grace=None)

    async def _status(self, request: wire.StatusRequest, _: object) -> wire.StatusResponse:
        return wire.StatusResponse(info=self._info if request.verbose else {})

    async def _list(self, _: wire.ListContainersRequest, __: object) -> wire.ListContainersResponse:
        containers = [
            wire.Container(state=f"CONTAINER_{state.upper()}", labels={"io.kubernetes.pod.uid": uid})
            for uid, state in self._containers.items()
        ]
        return wire.ListContainersResponse(containers=containers)
