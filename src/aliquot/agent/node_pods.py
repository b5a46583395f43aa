"""The pods of this node as the informer cache has them, and a way to wait for the next change."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from aliquot.clock import Clock, came
from aliquot.kube.resources import PODS, ApiResource
from aliquot.model import Pod
from aliquot.model.kubernetes import ContainerStatus, PodStatus


class _StartedContainer(ContainerStatus, frozen=True):
    container_id: str = msgspec.field(name="containerID", default="")
    """The container runtime's name and its id, such as `containerd://4c01…`."""


class _Status(PodStatus, frozen=True):
    container_statuses: Sequence[_StartedContainer] | None = None
    init_container_statuses: Sequence[_StartedContainer] | None = None


class NodePod(Pod, frozen=True):
    """A pod with the ids of its containers. Only the agent needs them, and a cluster has many pods."""

    status: _Status = _Status()

    @property
    def running(self) -> Mapping[str, str]:
        """The id of each container that runs, by name."""
        statuses = [*(self.status.container_statuses or ()), *(self.status.init_container_statuses or ())]
        return {
            status.name: status.container_id.rpartition("/")[2]
            for status in statuses
            if status.state.running is not None
        }


NODE_PODS = ApiResource(PODS.prefix, PODS.plural, NodePod, PODS.namespaced)


class NodePods:
    def __init__(self, all_pods: Callable[[], Sequence[Pod]]) -> None:
        self._all = all_pods
        self._changed = asyncio.Event()

    def all(self) -> Sequence[Pod]:
        return self._all()

    def by_uid(self, uid: str) -> Pod | None:
        return next((pod for pod in self._all() if pod.metadata.uid == uid), None)

    def notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self, seconds: float, clock: Clock) -> bool:
        """Wait for the next change for at most `seconds`. Returns whether there was one."""
        return await came(self._changed, seconds, clock)
