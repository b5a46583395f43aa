"""What we ask the container runtime: whether it injects CDI devices, since one that does not ignores them without a
word, and which pods have containers, also those that kubelet no longer tells of."""

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


class _Config(msgspec.Struct):
    enable_cdi: bool | None = msgspec.field(name="enableCDI", default=None)
    folders: list[str] | None = msgspec.field(name="cdiSpecDirs", default=None)

    @property
    def has_cdi(self) -> bool:
        """containerd 2.4 can no longer switch it off and does not tell; one that never had it knows no folders."""
        return self.folders is not None if self.enable_cdi is None else self.enable_cdi


async def check(endpoint: Path, folder: Path) -> None:
    """Raises BadConfig if the runtime has no CDI, or does not read the folder that we write to."""
    config = await _config(endpoint)
    if not config.has_cdi:
        raise BadConfig(f"the container runtime at {endpoint} has CDI switched off; set enable_cdi = true (containerd)")
    folders = config.folders or []
    if _plain(str(folder)) not in map(_plain, folders):
        raise BadConfig(
            f"the container runtime at {endpoint} reads CDI specs from {', '.join(folders) or 'nowhere'}, not from "
            f"{folder}: set --cdi-folder to one of these"
        )


async def running(endpoint: Path) -> frozenset[str]:
    """The UIDs of the pods that have a container which has not ended. Raises Refused without an answer."""
    try:
        async with rpc.channel(endpoint) as channel:
            listed = await rpc.call(channel, _LIST, ListContainersRequest(), ListContainersResponse)
    except grpc.aio.AioRpcError as error:
        raise Refused(f"the container runtime at {endpoint} does not answer: {error.details()}") from error
    alive = (container for container in listed.containers if container.state != CONTAINER_EXITED)
    return frozenset(container.labels[_POD_UID] for container in alive)


def _plain(folder: str) -> str:
    """/var/run is a link to /run on every machine, but seldom inside an image."""
    return folder.rstrip("/").replace("/var/run/", "/run/", 1)


async def _config(endpoint: Path) -> _Config:
    try:
        async with rpc.channel(endpoint) as channel:
            status = await rpc.call(channel, _STATUS, StatusRequest(verbose=True), StatusResponse)
        return msgspec.json.decode(status.info.get("config", "{}"), type=_Config)
    except grpc.aio.AioRpcError as error:
        raise BadConfig(f"the container runtime at {endpoint} does not answer: {error.details()}") from error
    except msgspec.DecodeError as error:
        raise BadConfig(f"the container runtime at {endpoint} tells its configuration in an unknown form") from error
