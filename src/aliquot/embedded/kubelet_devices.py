"""kubelet's device manager as an agent sees it, with the real protocol on real sockets.

Plugins register and offer ids. The manager calls Allocate at admission and PreStartContainer before a container
starts. It writes grants to a checkpoint file and lists them through PodResources, in kubelet's own formats.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import grpc
import grpc.aio
import msgspec
from google.protobuf.message import Message

from aliquot.agent import rpc
from aliquot.agent.proto import deviceplugin_pb2 as plugin_wire
from aliquot.agent.proto import podresources_pb2 as resources_wire
from aliquot.errors import AliquotError, Refused
from aliquot.model import Life, Pod
from aliquot.model.quantity import whole

_Answer = TypeVar("_Answer", bound=Message)

_CHECKPOINT = "kubelet_internal_checkpoint"
_DEVICE_PLUGIN = "/v1beta1.DevicePlugin"
_NO_NUMA_NODE = "-1"
_PRE_START_SECONDS = 30.0


class AdmissionError(AliquotError):
    """The pod cannot be admitted. kubelet fails such a pod for good."""


@dataclass
class _Plugin:
    channel: grpc.aio.Channel
    pre_start: bool
    ids: tuple[str, ...] = ()
    listening: asyncio.Task[None] | None = None


@dataclass(frozen=True)
class _Grant:
    pod_uid: str
    container: str
    life: Life
    resource: str
    ids: tuple[str, ...]
    answer: plugin_wire.ContainerAllocateResponse


class DeviceManager:
    """The device manager. `folder` is the device-plugins folder; PodResources is served next to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pod_resources = folder.parent / "pod-resources" / "kubelet.sock"
        self.changed = asyncio.Event()
        self._plugins: dict[str, _Plugin] = {}
        self._grants: list[_Grant] = []
        self._pods: dict[str, str] = {}
        """`namespace/name` of the pods from their admission on, by UID."""
        self._admitting = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> DeviceManager:
        for path in (self.folder, self.pod_resources.parent):
            path.mkdir(parents=True, exist_ok=True)
        self._write_checkpoint()
        register = rpc.unary(self._register, plugin_wire.RegisterRequest)
        listing = rpc.unary(self._list, resources_wire.ListPodResourcesRequest)
        await self._serve("v1beta1.Registration", {"Register": register}, self.folder / "kubelet.sock")
        await self._serve("v1.PodResourcesLister", {"List": listing}, self.pod_resources)
        return self

    async def _serve(self, service: str, methods: dict[str, rpc.Handler], socket: Path) -> None:
        server = rpc.server(service, methods, socket)
        await server.start()
        self._stack.push_async_callback(server.stop, grace=None)

    async def __aexit__(self, *_: object) -> None:
        for plugin in self._plugins.values():
            await _hang_up(plugin)
        await self._stack.aclose()

    # -- plugins

    def capacity(self) -> dict[str, int]:
        return {resource: len(plugin.ids) for resource, plugin in self._plugins.items()}

    async def _register(self, request: plugin_wire.RegisterRequest, _: rpc.Context) -> plugin_wire.Empty:
        resource = request.resource_name
        if resource in self._plugins:
            await _hang_up(self._plugins[resource])
        channel = await self._stack.enter_async_context(rpc.channel(self.folder / request.endpoint))
        plugin = _Plugin(channel, request.options.pre_start_required)
        plugin.listening = asyncio.create_task(self._listen(plugin))
        self._plugins[resource] = plugin
        return plugin_wire.Empty()

    async def _listen(self, plugin: _Plugin) -> None:
        """Follow a plugin's list. When it disconnects its ids are gone and its pods wait, as with the real kubelet."""
        lists = plugin.channel.unary_stream(
            f"{_DEVICE_PLUGIN}/ListAndWatch",
            request_serializer=plugin_wire.Empty.SerializeToString,
            response_deserializer=plugin_wire.ListAndWatchResponse.FromString,
        )
        try:
            async for listed in lists(plugin_wire.Empty()):
                self._offer(plugin, [device.ID for device in listed.devices if device.health == "Healthy"])
        except grpc.aio.AioRpcError:
            pass
        self._offer(plugin, ())

    def _offer(self, plugin: _Plugin, ids: Iterable[str]) -> None:
        plugin.ids = tuple(ids)
        self.changed.set()

    # -- pods

    async def admit(self, pod: Pod) -> None:
        """Allocate ids to every container. After AdmissionError, earlier grants stay until `release`."""
        async with self._admitting:
            self._pods[pod.metadata.uid] = pod.key
            try:
                await self._allocate_all(pod)
            except AdmissionError:
                del self._pods[pod.metadata.uid]
                raise

    async def _allocate_all(self, pod: Pod) -> None:
        reusable: dict[str, set[str]] = {}
        for container, life in pod.containers():
            for resource, amount in container.limits.items():
                if resource in self._plugins and (count := whole(str(amount))) > 0:
                    grant = await self._allocate(pod, container.name, life, resource, count, reusable)
                    self._grants.append(grant)
            self._write_checkpoint()

    async def _allocate(
        self, pod: Pod, container: str, life: Life, resource: str, amount: int, reusable: dict[str, set[str]]
    ) -> _Grant:
        ids = self._pick(resource, amount, reusable.setdefault(resource, set()), keep=life is Life.INIT)
        request = plugin_wire.AllocateRequest(
            container_requests=[plugin_wire.ContainerAllocateRequest(devices_ids=ids)]
        )
        try:
            answer = await self._call(resource, "Allocate", request, plugin_wire.AllocateResponse, None)
        except grpc.aio.AioRpcError as error:
            raise AdmissionError(f"Allocate failed due to {error.details()}, which is unexpected") from error
        return _Grant(pod.metadata.uid, container, life, resource, ids, answer.container_responses[0])

    def _pick(self, resource: str, amount: int, reusable: set[str], *, keep: bool) -> tuple[str, ...]:
        """Pick ids for a container: first those of finished init containers, then free ones."""
        taken = {device for grant in self._grants if grant.resource == resource for device in grant.ids}
        free = [device for device in self._plugins[resource].ids if device not in taken]
        ids = tuple([*sorted(reusable), *free][:amount])
        if len(ids) < amount:
            raise AdmissionError(f"Requested: {amount}, available: {len(free)} of {resource}")
        if keep:
            reusable |= set(ids)
        else:
            reusable -= set(ids)
        return ids

    async def pre_start(self, pod: Pod, container: str) -> list[plugin_wire.ContainerAllocateResponse]:
        """Prepare a container. Returns what the plugins answered for it at Allocate: kubelet passes it to the container
        runtime. Raises Refused with the plugin's message."""
        grants = [grant for grant in self._grants if (grant.pod_uid, grant.container) == (pod.metadata.uid, container)]
        for grant in grants:
            if self._plugins[grant.resource].pre_start:
                await self._prepare(grant)
        return [grant.answer for grant in grants]

    async def _prepare(self, grant: _Grant) -> None:
        request = plugin_wire.PreStartContainerRequest(devices_ids=grant.ids)
        try:
            await self._call(
                grant.resource, "PreStartContainer", request, plugin_wire.PreStartContainerResponse, _PRE_START_SECONDS
            )
        except grpc.aio.AioRpcError as error:
            raise Refused(f"device plugin PreStartContainer rpc failed with err: {error.details()}") from error

    async def _call(
        self, resource: str, method: str, request: Message, answer: type[_Answer], seconds: float | None
    ) -> _Answer:
        channel = self._plugins[resource].channel
        return await rpc.call(channel, f"{_DEVICE_PLUGIN}/{method}", request, answer, timeout=seconds)

    def release(self, pod_uid: str) -> None:
        self._pods.pop(pod_uid, None)
        self._grants = [grant for grant in self._grants if grant.pod_uid != pod_uid]
        self._write_checkpoint()

    # -- what the agent reads

    def _write_checkpoint(self) -> None:
        entries = [
            {
                "PodUID": grant.pod_uid,
                "ContainerName": grant.container,
                "ResourceName": grant.resource,
                "DeviceIDs": {_NO_NUMA_NODE: grant.ids},
                "AllocResp": base64.b64encode(grant.answer.SerializeToString()).decode(),
            }
            for grant in self._grants
        ]
        registered = {resource: plugin.ids for resource, plugin in self._plugins.items()}
        checkpoint = {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": registered}, "Checksum": 0}
        temporary = self.folder / ".checkpoint"
        temporary.write_bytes(msgspec.json.encode(checkpoint))
        temporary.rename(self.folder / _CHECKPOINT)

    async def _list(
        self, _: resources_wire.ListPodResourcesRequest, __: rpc.Context
    ) -> resources_wire.ListPodResourcesResponse:
        """List pods from their admission on, and their grants without plain init containers, as kubelet does."""
        pods: dict[str, resources_wire.PodResources] = {}
        for uid, key in self._pods.items():
            namespace, _slash, name = key.partition("/")
            pods[uid] = resources_wire.PodResources(name=name, namespace=namespace)
        for grant in self._grants:
            if grant.pod_uid in pods and grant.life is not Life.INIT:
                devices = resources_wire.ContainerDevices(resource_name=grant.resource, device_ids=grant.ids)
                listed = resources_wire.ContainerResources(name=grant.container, devices=[devices])
                pods[grant.pod_uid].containers.append(listed)
        return resources_wire.ListPodResourcesResponse(pod_resources=pods.values())


async def _hang_up(plugin: _Plugin) -> None:
    if plugin.listening is not None:
        plugin.listening.cancel()
        await asyncio.gather(plugin.listening, return_exceptions=True)
