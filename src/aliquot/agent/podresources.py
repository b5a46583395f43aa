"""kubelet's PodResources API: which pod holds which device ids."""

from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from aliquot.agent import rpc
from aliquot.agent.proto.podresources_pb2 import ListPodResourcesRequest, ListPodResourcesResponse
from aliquot.clock import Clock
from aliquot.errors import Refused

_LIST = "/v1.PodResourcesLister/List"
_TRIES = 5
_PAUSE = 0.1


@dataclass(frozen=True)
class HeldIds:
    """The ids of one resource that one container holds."""

    pod: str
    container: str
    ids: frozenset[str]


class PodResources:
    def __init__(self, socket: Path, clock: Clock) -> None:
        self._socket = socket
        self._clock = clock

    async def holdings(self, resource: str) -> list[HeldIds]:
        """Who holds ids of a resource. Plain init containers are never listed. Raises Refused if kubelet is silent."""
        answer = await self._list()
        return [
            HeldIds(f"{pod.namespace}/{pod.name}", container.name, frozenset(devices.device_ids))
            for pod in answer.pod_resources
            for container in pod.containers
            for devices in container.devices
            if devices.resource_name == resource
        ]

    async def pods(self) -> frozenset[str]:
        """`namespace/name` of the pods that kubelet manages. Raises Refused if it does not answer."""
        return frozenset(f"{pod.namespace}/{pod.name}" for pod in (await self._list()).pod_resources)

    async def _list(self) -> ListPodResourcesResponse:
        """Retries when kubelet's rate limit (100 a second, bursts of 10) refuses the call."""
        async with rpc.channel(self._socket) as channel:
            for tries_left in reversed(range(_TRIES)):
                try:
                    return await rpc.call(channel, _LIST, ListPodResourcesRequest(), ListPodResourcesResponse)
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or not tries_left:
                        raise Refused(
                            f"kubelet's PodResources API at {self._socket} failed: {error.details()}"
                        ) from error
                await self._clock.sleep(_PAUSE)
        raise AssertionError("the last try returns or raises")
