"""A device plugin that is not ours, as a process: it offers the ids of an original and gives its answers.

`python -m tests.rig.other_plugin FOLDER FILE` serves the resources in FILE to the kubelet of FOLDER, and registers
again when kubelet restarts. It shares no code with the agent but the messages of the protocol.
"""

import dataclasses
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from aliquot.agent.proto import deviceplugin_pb2 as wire

_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Answer:
    """An answer to Allocate. `{ids}` in a variable stands for the ids, joined by commas. Device nodes and mounts are
    pairs of the container's path and the machine's. With a `cdi_kind`, each id is a CDI device of that kind."""

    envs: Mapping[str, str] = field(default_factory=dict)
    devices: Sequence[tuple[str, str]] = ()
    mounts: Sequence[tuple[str, str]] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_kind: str = ""


@dataclass(frozen=True)
class Offer:
    """A resource as an original offers it. The originals know no more of a pod than the number of its ids: `answers`
    has one for each number."""

    resource: str
    socket: str
    ids: Sequence[str]
    answers: Mapping[int, Answer]
    pre_start: bool = False


def write(path: Path, offers: Sequence[Offer]) -> Path:
    path.write_text(json.dumps([dataclasses.asdict(offer) for offer in offers]))
    return path


class _Plugin:
    def __init__(self, folder: Path, offer: Mapping[str, Any]) -> None:
        self._folder = folder
        self._offer = offer
        self._options = wire.DevicePluginOptions(pre_start_required=offer["pre_start"])

    def serve(self) -> None:
        kubelet = self._folder / "kubelet.sock"
        while True:
            stopping = threading.Event()
            server = grpc.server(ThreadPoolExecutor(8))
            server.add_generic_rpc_handlers((self._handlers(stopping),))
            socket = self._folder / self._offer["socket"]
            socket.unlink(missing_ok=True)
            server.add_insecure_port(f"unix:{socket}")
            server.start()
            before = _identity(kubelet)
            try:
                self._register(kubelet)
                while _identity(kubelet) == before:
                    time.sleep(_LOOK_SECONDS)
            except grpc.RpcError:
                time.sleep(_LOOK_SECONDS)
            stopping.set()
            server.stop(0).wait()

    def _register(self, kubelet: Path) -> None:
        request = wire.RegisterRequest(
            version="v1beta1",
            endpoint=self._offer["socket"],
            resource_name=self._offer["resource"],
            options=self._options,
        )
        options = [("grpc.default_authority", "localhost")]
        with grpc.insecure_channel(f"unix:{kubelet}", options=options) as channel:
            call = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=wire.RegisterRequest.SerializeToString,
                response_deserializer=wire.Empty.FromString,
            )
            call(request, timeout=5)

    def _handlers(self, stopping: threading.Event) -> Any:
        def listed(_: Any, context: Any) -> Iterator[wire.ListAndWatchResponse]:
            devices = [wire.Device(ID=device, health="Healthy") for device in self._offer["ids"]]
            yield wire.ListAndWatchResponse(devices=devices)
            while not stopping.wait(_LOOK_SECONDS) and context.is_active():
                pass

        def unary(answer: Any, request: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(
                lambda asked, _: answer(asked), request.FromString, lambda message: message.SerializeToString()
            )

        return grpc.method_handlers_generic_handler(
            "v1beta1.DevicePlugin",
            {
                "GetDevicePluginOptions": unary(lambda _: self._options, wire.Empty),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    listed, wire.Empty.FromString, wire.ListAndWatchResponse.SerializeToString
                ),
                "Allocate": unary(self._allocate, wire.AllocateRequest),
                "PreStartContainer": unary(lambda _: wire.PreStartContainerResponse(), wire.PreStartContainerRequest),
            },
        )

    def _allocate(self, request: wire.AllocateRequest) -> wire.AllocateResponse:
        return wire.AllocateResponse(
            container_responses=[self._answer(asked.devices_ids) for asked in request.container_requests]
        )

    def _answer(self, ids: Sequence[str]) -> wire.ContainerAllocateResponse:
        answer = self._offer["answers"][str(len(ids))]
        return wire.ContainerAllocateResponse(
            envs={name: value.format(ids=",".join(ids)) for name, value in answer["envs"].items()},
            devices=[wire.DeviceSpec(container_path=a, host_path=b, permissions="rwm") for a, b in answer["devices"]],
            mounts=[wire.Mount(container_path=a, host_path=b, read_only=True) for a, b in answer["mounts"]],
            annotations=answer["annotations"],
            cdi_devices=[wire.CDIDevice(name=f"{kind}={each}") for each in ids] if (kind := answer["cdi_kind"]) else [],
        )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def main(folder: str, file: str) -> None:
    plugins = [_Plugin(Path(folder), offer) for offer in json.loads(Path(file).read_text())]
    threads = [threading.Thread(target=plugin.serve) for plugin in plugins]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
