"""The checkpoint of kubelet's device manager: who was allocated which ids, and what the agent answered.

Only this record has plain init containers, and only from it can a restarted agent read back what it answered.
The format is kubelet's own. kubelet replaces the file as a whole, so a read never sees half of it.
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from google.protobuf.message import DecodeError

from aliquot.agent import answers, cdi
from aliquot.agent.answers import Answer
from aliquot.agent.devices import ContainerEdits, DeviceNode, Mount
from aliquot.agent.proto.deviceplugin_pb2 import ContainerAllocateResponse
from aliquot.errors import BadRecord


@dataclass(frozen=True)
class Grant:
    """Ids of a resource that kubelet allocated to a container, and what the device plugin answered. kubelet gives that
    answer to the container at every start."""

    pod_uid: str
    container: str
    resource: str
    ids: frozenset[str]
    promised: tuple[str, ...]
    """The CDI devices of the answer."""
    answer: Answer | None = None
    """What this agent answered without CDI."""
    edits: ContainerEdits = field(default_factory=ContainerEdits)
    """The answer without its CDI devices, whoever's it is."""

    @property
    def is_ours(self) -> bool:
        return self.answer is not None or any(map(cdi.is_ours, self.promised))


_IDS = list[str] | None


class _Entry(msgspec.Struct):
    pod_uid: str = msgspec.field(name="PodUID")
    container: str = msgspec.field(name="ContainerName")
    resource: str = msgspec.field(name="ResourceName")
    ids: dict[str, list[str]] | None = msgspec.field(name="DeviceIDs", default=None)
    answer: str | None = msgspec.field(name="AllocResp", default=None)


class _Data(msgspec.Struct):
    entries: list[_Entry] | None = msgspec.field(name="PodDeviceEntries", default=None)
    registered: dict[str, msgspec.Raw] | None = msgspec.field(name="RegisteredDevices", default=None)


class _Checkpoint(msgspec.Struct):
    data: _Data = msgspec.field(name="Data")


def read(path: Path, resources: Set[str] | None = None) -> list[Grant]:
    """The grants of these resources, or all grants. Raises BadRecord if the file is missing or has another format."""
    entries = _read(path).entries or ()
    with _named(path):
        return [_grant(entry) for entry in entries if resources is None or entry.resource in resources]


def _read(path: Path) -> _Data:
    with _named(path):
        return msgspec.json.decode(path.read_bytes(), type=_Checkpoint).data


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, DecodeError, binascii.Error) as error:
        raise BadRecord(f"kubelet's checkpoint {path} cannot be read: {error}") from error


def registered_ids(path: Path, is_wanted: Callable[[str], bool]) -> Mapping[str, frozenset[str]]:
    """The healthy ids of the wanted resources that kubelet was last told, by whichever device plugin. Raises
    BadRecord."""
    registered = _read(path).registered or {}
    with _named(path):
        found = {name: msgspec.json.decode(ids, type=_IDS) for name, ids in registered.items() if is_wanted(name)}
        return {name: frozenset(ids or ()) for name, ids in found.items()}


def _grant(entry: _Entry) -> Grant:
    ids = frozenset(device for devices in (entry.ids or {}).values() for device in devices)
    answer = ContainerAllocateResponse.FromString(base64.b64decode(entry.answer or "", validate=True))
    promised = tuple(device.name for device in answer.cdi_devices)
    edits = ContainerEdits(
        dict(answer.envs),
        tuple(DeviceNode(device.container_path, device.host_path) for device in answer.devices),
        tuple(Mount(mount.container_path, mount.host_path) for mount in answer.mounts),
    )
    return Grant(entry.pod_uid, entry.container, entry.resource, ids, promised, answers.read(answer), edits)
