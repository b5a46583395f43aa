"""Devices of a node with the real agent: kubelet's device manager on real sockets, and CDI specs."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec

from aliquot.agent import cdi
from aliquot.agent.proto import deviceplugin_pb2 as wire
from aliquot.embedded.kubelet_devices import DeviceManager
from aliquot.embedded.nodes.devices import Inside
from aliquot.errors import Refused
from aliquot.model import Pod


class _Edits(msgspec.Struct):
    env: list[str] = []
    nodes: list[dict[str, str]] = msgspec.field(name="deviceNodes", default_factory=list)


class _Device(msgspec.Struct):
    name: str
    edits: _Edits = msgspec.field(name="containerEdits")


class _Spec(msgspec.Struct):
    kind: str
    devices: list[_Device]


class AgentDevices:
    """The devices of one node. `folder` holds the sockets, so its path must be short."""

    def __init__(self, folder: Path) -> None:
        self.manager = DeviceManager(folder / "device-plugins")
        self.cdi_folder = folder / "cdi"

    @property
    def changed(self) -> asyncio.Event:
        return self.manager.changed

    async def open(self) -> None:
        self.cdi_folder.mkdir(parents=True, exist_ok=True)
        await self.manager.__aenter__()

    async def close(self) -> None:
        await self.manager.__aexit__()

    def capacity(self) -> Mapping[str, int]:
        return self.manager.capacity()

    async def admit(self, pod: Pod) -> None:
        await self.manager.admit(pod)

    async def start(self, pod: Pod, container: str) -> Inside:
        inside = self._inject(await self.manager.pre_start(pod, container))
        specs = cdi.SpecFolder(self.cdi_folder).read()
        records = (spec.record for spec in specs if spec.pod_uid == pod.metadata.uid and spec.record is not None)
        inside.parts = next((record.holding.placement.containers.get(container, ()) for record in records), ())
        return inside

    def see_pods(self) -> None:
        """Does nothing: the agent has its own watch."""

    def release(self, pod_uid: str) -> None:
        self.manager.release(pod_uid)

    def _inject(self, answers: list[wire.ContainerAllocateResponse]) -> Inside:
        """Inject what the plugins answered and its CDI devices, as kubelet and a container runtime do. Raises Refused
        for a name without a spec."""
        specs = [msgspec.json.decode(path.read_bytes(), type=_Spec) for path in self.cdi_folder.glob("*.json")]
        known = {f"{spec.kind}={device.name}": device.edits for spec in specs for device in spec.devices}
        inside = Inside()
        for answer in answers:
            inside.environment |= answer.envs
            inside.devices += [device.container_path for device in answer.devices]
        for name in (device.name for answer in answers for device in answer.cdi_devices):
            if name not in known:
                raise Refused(f"CDI device injection failed: unresolvable CDI devices {name}")
            inside.environment |= dict(line.split("=", 1) for line in known[name].env)
            inside.devices += [node["path"] for node in known[name].nodes]
        return inside
