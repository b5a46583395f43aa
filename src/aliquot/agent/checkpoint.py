"""The checkpoint of kubelet's device manager: who was allocated which ids, and what the agent answered.

Only this record has plain init containers, and only from it can a restarted agent read back what it answered.
The format is kubelet's own. kubelet replaces the file as a whole, so a read never sees half of it.
"""

import base64
import binascii
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

import msgspec
from google.protobuf.message import DecodeError

from aliquot.agent import answers
from aliquot.agent.answers import Answer
from aliquot.agent.proto.deviceplugin_pb2 import ContainerAllocateResponse
from aliquot.errors import BadRecord


@dataclass(frozen=True)
class Grant:
    """Ids of a resource that kubelet allocated to a container, and what the agent answered: the promised CDI names, or
    the devices themselves."""

    pod_uid: str
    container: str
    resource: str
    ids: frozenset[str]
    promised: tuple[str, ...]
    answer: Answer | None = None


class _Entry(msgspec.Struct):
    pod_uid: str = msgspec.field(name="PodUID")
    container: str = msgspec.field(name="ContainerName")
    resource: str = msgspec.field(name="ResourceName")
    ids: dict[str, list[str]] | None = msgspec.field(name="DeviceIDs", default=None)
    answer: str = msgspec.field(name="AllocResp", default="")


class _Data(msgspec.Struct):
    entries: list[_Entry] | None = msgspec.field(name="PodDeviceEntries", default=None)


class _Checkpoint(msgspec.Struct):
    data: _Data = msgspec.field(name="Data")


def read(path: Path, resources: Set[str] | None = None) -> list[Grant]:
    """The grants of these resources, or all grants. Raises BadRecord if the file is missing or has another format."""
    try:
        checkpoint = msgspec.json.decode(path.read_bytes(), type=_Checkpoint)
        entries = checkpoint.data.entries or ()
        return [_grant(entry) for entry in entries if resources is None or entry.resource in resources]
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, DecodeError, binascii.Error) as error:
        raise BadRecord(f"kubelet's checkpoint {path} cannot be read: {error}") from error


def _grant(entry: _Entry) -> Grant:
    ids = frozenset(device for devices in (entry.ids or {}).values() for device in devices)
    answer = ContainerAllocateResponse.FromString(base64.b64decode(entry.answer, validate=True))
    promised = tuple(device.name for device in answer.cdi_devices)
    return Grant(entry.pod_uid, entry.container, entry.resource, ids, promised, answers.read(answer))
