"""kubelet's PodResources API: which pod holds which device ids."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from aliquot.agent import rpc
from aliquot.agent.proto import podresources_pb2 as wire
from aliquot.agent.proto.podresources_pb2 import ListPodResourcesRequest, ListPodResourcesResponse
from aliquot.clock import Clock
from aliquot.errors import Refused

_LIST = "/v1.PodResourcesLister/List"
_OLDER_LIST = "/v1alpha1.PodResourcesLister/List"
"""Of kubelets before 1.20. Its messages have the same fields and numbers as those of v1 that we use."""
_TRIES = 5
_PAUSE = 0.1


@dataclass(frozen=True)
class HeldIds:
    """The ids of one resource that one container holds."""

    pod: str
    container: str
    ids: frozenset[str]


@dataclass(frozen=True)
class PodCards:
    """The cards that the containers of one pod hold, by container. Containers without cards are left out."""

    pod: str
    containers: Mapping[str, Sequence[str]]


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

    async def cards(self, card_in: Callable[[str, str], str]) -> list[PodCards]:
        """Which cards each pod holds, as `holdings`. `card_in` tells the card from a resource and a device id; "" if
        they name none. kubelet may list a name twice, for a pod and its successor."""
        answer = await self._list()
        return [PodCards(f"{pod.namespace}/{pod.name}", _cards(pod, card_in)) for pod in answer.pod_resources]

    async def pods(self) -> frozenset[str]:
        """`namespace/name` of the pods that kubelet manages. Raises Refused if it does not answer."""
        return frozenset(f"{pod.namespace}/{pod.name}" for pod in (await self._list()).pod_resources)

    async def _list(self) -> ListPodResourcesResponse:
        """Retries when kubelet's rate limit (100 a second, bursts of 10) refuses the call."""
        async with rpc.channel(self._socket) as channel:
            for tries_left in reversed(range(_TRIES)):
                try:
                    return await _ask(channel)
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or not tries_left:
                        raise Refused(
                            f"kubelet's PodResources API at {self._socket} failed: {error.details()}"
                        ) from error
                await self._clock.sleep(_PAUSE)
        raise AssertionError("the last try returns or raises")


async def _ask(channel: grpc.aio.Channel) -> ListPodResourcesResponse:
    try:
        return await rpc.call(channel, _LIST, ListPodResourcesRequest(), ListPodResourcesResponse)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
            raise
    return await rpc.call(channel, _OLDER_LIST, ListPodResourcesRequest(), ListPodResourcesResponse)


def _cards(pod: wire.PodResources, card_in: Callable[[str, str], str]) -> Mapping[str, Sequence[str]]:
    """kubelet lists the devices of a container once for each NUMA node."""
    held = {
        container.name: {card_in(own.resource_name, device) for own in container.devices for device in own.device_ids}
        for container in pod.containers
    }
    return {name: sorted(cards) for name, ids in held.items() if (cards := ids - {""})}
