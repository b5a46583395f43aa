"""A device plugin: offers a resource to kubelet, and passes its Allocate and PreStart calls on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence, Set
from pathlib import Path
from typing import Protocol

import grpc
import grpc.aio
import structlog

from aliquot import faults
from aliquot.agent import rpc
from aliquot.agent.device_list import DeviceList
from aliquot.agent.handover import HandOver
from aliquot.agent.proto import deviceplugin_pb2 as wire
from aliquot.clock import Clock
from aliquot.errors import AliquotError, BadConfig
from aliquot.model.records import OBSERVED
from aliquot.racing import first_of

_log = structlog.get_logger()

_VERSION = "v1beta1"
_SERVICE = "v1beta1.DevicePlugin"
_REGISTER = "/v1beta1.Registration/Register"
_KUBELET = "kubelet.sock"
_LOOK_SECONDS = 0.5
"""How often the plugin looks for a new kubelet. It must be registered within a second of its return, and to start again
takes a moment, too."""
_REGISTER_SECONDS = 15.0
"""kubelet calls the plugin back for up to 10 s before it answers. A call that is given up early may still register the
plugin, and the next call is then refused."""
_ALREADY_CONNECTED = "device plugin already connected"
_GRACE_SECONDS = 1.0
_OPTIONS = wire.DevicePluginOptions(pre_start_required=True)


class AnswersAllocate(Protocol):
    """Promises a CDI name (`cdi.Promises`), or gives the devices themselves (`allocating.AllocateAnswers`)."""

    async def allocate(self, resource: str, ids: Set[str], /) -> wire.ContainerAllocateResponse:
        """The answer for one container. Raises AliquotError, which fails the pod for good."""


class DevicePlugin:
    """The device plugin of one resource."""

    def __init__(
        self, listed: DeviceList, folder: Path, allocating: AnswersAllocate, hand_over: HandOver, clock: Clock
    ) -> None:
        self._clock = clock
        self.resource = listed.resource.name
        self._folder = folder
        self._usual_socket = folder / listed.resource.socket
        self._socket = self._usual_socket
        self._refused_sockets = 0
        self._listed = listed
        self._allocating = allocating
        self._hand_over = hand_over
        self._stopping = asyncio.Event()
        self._watched: asyncio.Event | None = None
        """The `_stopping` of the server on which kubelet follows the list."""
        self.is_registered = False
        """Whether kubelet knows this plugin."""
        self._said: str | None = None
        """Why kubelet does not take the registration, as the log said last."""
        self.rival = ""
        """What is known of another plugin of this resource."""

    @property
    def ids(self) -> Sequence[str]:
        """The ids that it offers."""
        return self._listed.ids

    async def serve(self) -> None:
        """Serve until cancelled. Registers again when kubelet restarts: it forgets its plugins and their sockets."""
        while True:
            await self._refuse_rival()
            socket = self._socket
            server = rpc.server(_SERVICE, self._methods(), socket)
            self._stopping = asyncio.Event()
            await server.start()
            ours = _identity(socket)
            grace: float | None = _GRACE_SECONDS
            try:
                if await self._register_and_watch(ours):
                    grace = None
                    self._socket = self._usual_socket
                    self._refused_sockets = 0
            finally:
                self._stopping.set()
                await _stop(server, socket, ours, grace)

    async def _refuse_rival(self) -> None:
        """Raises BadConfig if another plugin serves the socket: two would take turns, so the first one stays. Removes
        what killed agents left beside it."""
        further = sorted(self._folder.glob(f"{self._usual_socket.name}.*"))
        for path in (self._usual_socket, *further):
            try:
                _, writer = await asyncio.open_unix_connection(path)
            except OSError:
                continue
            writer.close()
            raise BadConfig(
                f"another device plugin serves {self.resource} on {path}; remove it first, or label the node "
                f"{OBSERVED}=true if that plugin is to go on"
            )
        for path in further:
            path.unlink(missing_ok=True)

    async def _register_and_watch(self, ours: tuple[int, int] | None) -> bool:
        """Returns when kubelet has restarted, or our socket was replaced or must be another. Says whether it was
        kubelet: then nobody waits for the calls in progress."""
        kubelet = self._folder / _KUBELET
        while (seen := _identity(kubelet)) is None or not await self._register(kubelet):
            await self._clock.sleep(_LOOK_SECONDS)
            if _identity(self._socket) != ours:  # kubelet removes every socket when it starts
                return False
        self.is_registered = True
        self._said = None
        _log.info("registered with kubelet", resource=self.resource, ids=len(self.ids))
        while _identity(self._socket) == ours and _identity(kubelet) == seen:
            await self._clock.sleep(_LOOK_SECONDS)
        self.is_registered = False
        _log.info("kubelet restarted, registering again", resource=self.resource)
        return _identity(kubelet) != seen

    async def _register(self, kubelet: Path) -> bool:
        request = wire.RegisterRequest(
            version=_VERSION, endpoint=self._socket.name, resource_name=self.resource, options=_OPTIONS
        )
        try:
            async with rpc.channel(kubelet) as channel:
                await rpc.call(channel, _REGISTER, request, wire.Empty, timeout=_REGISTER_SECONDS)
        except grpc.aio.AioRpcError as error:
            if self._watched is self._stopping:  # kubelet knows this plugin, and only its answer was lost
                return True
            if error.details() != self._said:  # kubelet may be away for minutes, as in a reboot
                self._said = error.details()
                _log.warning("kubelet does not accept the registration yet", error=self._said, resource=self.resource)
            if (error.details() or "").startswith(_ALREADY_CONNECTED):
                self._take_another_socket()
            return False
        return True

    def _take_another_socket(self) -> None:
        """kubelet 1.37 holds on to a plugin that has died, and refuses its socket from then on, if the next one
        registers before kubelet has noticed."""
        self._refused_sockets += 1
        self._socket = self._usual_socket.with_name(f"{self._usual_socket.name}.{self._refused_sockets}")

    # -- what kubelet calls

    def _methods(self) -> dict[str, rpc.Handler]:
        return {
            "GetDevicePluginOptions": rpc.unary(self._options, wire.Empty),
            "ListAndWatch": rpc.streaming(self._list_and_watch, wire.Empty),
            "Allocate": rpc.unary(self._allocate, wire.AllocateRequest),
            "PreStartContainer": rpc.unary(self._pre_start, wire.PreStartContainerRequest),
        }

    async def _options(self, _: wire.Empty, __: rpc.Context) -> wire.DevicePluginOptions:
        return _OPTIONS

    async def _list_and_watch(self, _: wire.Empty, __: rpc.Context) -> AsyncIterator[wire.ListAndWatchResponse]:
        """The list, and again whenever it changes."""
        self._watched = stopping = self._stopping
        told = None
        with self._listed.changed.as_event() as changed:
            while not stopping.is_set():
                changed.clear()
                await self._listed.refresh()
                listed, message = self._listed.current()
                if listed != told:
                    yield message
                    told = listed
                await first_of(changed.wait(), stopping.wait())

    async def _allocate(self, request: wire.AllocateRequest, context: rpc.Context) -> wire.AllocateResponse:
        context.add_done_callback(_allocated)  # type: ignore[arg-type]  # the stub wants an object of its own
        asked = [frozenset(container.devices_ids) for container in request.container_requests]
        try:
            answers = [await self._allocating.allocate(self.resource, ids) for ids in asked]
        except AliquotError as error:
            _log.warning("refused an Allocate call", why=str(error))
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return wire.AllocateResponse(container_responses=answers)

    async def _pre_start(
        self, request: wire.PreStartContainerRequest, context: rpc.Context
    ) -> wire.PreStartContainerResponse:
        try:
            await self._hand_over.prepare(self.resource, frozenset(request.devices_ids))
        except AliquotError as error:
            _log.warning("refused a PreStartContainer call", why=str(error))
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        self._listed.changed.emit(None)
        return wire.PreStartContainerResponse()


async def _stop(server: grpc.aio.Server, socket: Path, ours: tuple[int, int] | None, grace: float | None) -> None:
    """Stop the server, with some seconds of `grace` for calls in progress. gRPC removes any file at the socket's path,
    so a rival's socket there is put back."""
    rival = _identity(socket) not in (None, ours)
    kept = socket.with_name(f".{socket.name}.kept")
    if rival:
        kept.unlink(missing_ok=True)
        kept.hardlink_to(socket)
    await server.stop(grace)
    if rival:
        kept.rename(socket)
    else:
        socket.unlink(missing_ok=True)


def _allocated(_: object) -> None:
    faults.reach("after-allocate")


def _identity(path: Path) -> tuple[int, int] | None:
    """What changes when a socket is created again; None while there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns
