"""Questions to the container runtime.

Does it inject CDI devices? A runtime without CDI ignores them silently. Through which programs does it start
containers? Which pods have containers? The runtime also knows those of pods that kubelet no longer lists.
"""

from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import msgspec

from aliquot.agent import rpc
from aliquot.agent.proto.runtime_pb2 import (
    CONTAINER_EXITED,
    ListContainersRequest,
    ListContainersResponse,
    StatusRequest,
    StatusResponse,
)
from aliquot.errors import BadConfig, Refused

_STATUS = "/runtime.v1.RuntimeService/Status"
_LIST = "/runtime.v1.RuntimeService/ListContainers"
_POD_UID = "io.kubernetes.pod.uid"
"""kubelet's label on every container."""


@dataclass(frozen=True)
class Handler:
    """A way in which the runtime starts containers, which a RuntimeClass may name."""

    name: str
    program: str
    """The program that it starts instead of runc; empty if none is configured."""
    is_default: bool


class _Options(msgspec.Struct):
    program: str | None = msgspec.field(name="BinaryName", default=None)


class _Handler(msgspec.Struct):
    options: _Options | None = None
    path: str | None = msgspec.field(name="runtimePath", default=None)

    @property
    def program(self) -> str:
        return (self.options and self.options.program) or self.path or ""


class _Handlers(msgspec.Struct):
    default: str | None = msgspec.field(name="defaultRuntimeName", default=None)
    named: dict[str, _Handler] | None = msgspec.field(name="runtimes", default=None)


class _Config(msgspec.Struct):
    enable_cdi: bool | None = msgspec.field(name="enableCDI", default=None)
    folders: list[str] | None = msgspec.field(name="cdiSpecDirs", default=None)
    handlers: _Handlers | None = msgspec.field(name="containerd", default=None)

    @property
    def has_cdi(self) -> bool:
        """containerd 2.4 always has CDI and no longer reports the switch. A runtime that never had CDI reports no
        folders."""
        return self.folders is not None if self.enable_cdi is None else self.enable_cdi


async def lacks(endpoint: Path, folder: Path) -> str:
    """Why the runtime would not inject the specs of a folder; empty if it does. Raises BadConfig if it does not
    answer."""
    config = await _config(endpoint)
    if not config.has_cdi:
        return f"the container runtime at {endpoint} has CDI disabled; set enable_cdi = true (containerd)"
    folders = config.folders or []
    if _plain(str(folder)) not in map(_plain, folders):
        return (
            f"the container runtime at {endpoint} reads CDI specs from {', '.join(folders) or 'nowhere'}, not from "
            f"{folder}: set --cdi-folder to one of these"
        )
    return ""


async def handlers(endpoint: Path) -> tuple[Handler, ...]:
    """How the runtime starts containers. Raises BadConfig if it does not answer."""
    config = (await _config(endpoint)).handlers or _Handlers()
    named = (config.named or {}).items()
    return tuple(Handler(name, handler.program, is_default=name == config.default) for name, handler in named)


async def running(endpoint: Path) -> frozenset[str]:
    """The UIDs of pods with a container that has not ended. Raises Refused if the runtime does not answer."""
    try:
        async with rpc.channel(endpoint) as channel:
            listed = await rpc.call(channel, _LIST, ListContainersRequest(), ListContainersResponse)
    except grpc.aio.AioRpcError as error:
        raise Refused(f"the container runtime at {endpoint} does not answer: {error.details()}") from error
    alive = (container for container in listed.containers if container.state != CONTAINER_EXITED)
    return frozenset(container.labels[_POD_UID] for container in alive)


def _plain(folder: str) -> str:
    """On every machine /var/run links to /run, but seldom inside an image."""
    return folder.rstrip("/").replace("/var/run/", "/run/", 1)


async def _config(endpoint: Path) -> _Config:
    try:
        async with rpc.channel(endpoint) as channel:
            status = await rpc.call(channel, _STATUS, StatusRequest(verbose=True), StatusResponse)
        return msgspec.json.decode(status.info.get("config", "{}"), type=_Config)
    except grpc.aio.AioRpcError as error:
        raise BadConfig(f"the container runtime at {endpoint} does not answer: {error.details()}") from error
    except msgspec.DecodeError as error:
        raise BadConfig(
            f"the container runtime at {endpoint} reports its configuration in an unknown format"
        ) from error
