"""CDI specs: what the container runtime adds to a container that asks for a promised name.

containerd reads the folder only when inotify reports a write or a rename in it, and it may serve the old content of a
file that was replaced. So the agent uses each name once, writes the file under another name and renames it, and then
waits a moment before it answers kubelet.

A spec also carries the pod's hand-over record, which the agent reads back when it starts.
"""

import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import structlog

from aliquot.agent import handover_record
from aliquot.agent.devices import ContainerEdits, DeviceNode, Hook, Mount
from aliquot.agent.handover_record import HandOverRecord
from aliquot.agent.proto import deviceplugin_pb2 as wire
from aliquot.errors import BadConfig, BadRecord, Refused
from aliquot.model.bounds import LARGEST_OWN_SPEC

_log = structlog.get_logger()

KIND = "aliquot.io/gpu"
_VERSION, _VERSION_WITH_GROUPS = "0.6.0", "0.7.0"
"""The lowest that have annotations, and further groups: an older container runtime refuses a higher one."""
_POD_UID = "aliquot.io/pod-uid"
_HANDED = "aliquot.io/handed-over"
_PREFIX = "aliquot.io-gpu_"
_TEMPORARY = ".aliquot-"
_NAME = re.compile(r"[A-Za-z0-9-]+")


def promise(ids: Iterable[str]) -> str:
    """A unique CDI device name for an Allocate. The ids alone are not unique: kubelet allocates them again later."""
    digest = hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()
    return f"{KIND}={digest[:16]}-{secrets.token_hex(4)}"


class Promises:
    """Answers Allocate on a node whose runtime has CDI."""

    async def allocate(self, _: str, ids: Set[str]) -> wire.ContainerAllocateResponse:
        """Promise a CDI name. Never refuses: an error here would fail the pod for good."""
        return wire.ContainerAllocateResponse(cdi_devices=[wire.CDIDevice(name=promise(ids))])


def is_ours(promised: str) -> bool:
    return promised.startswith(f"{KIND}=")


@dataclass(frozen=True)
class CdiSpec:
    """A spec that this agent wrote, as it is in the folder."""

    path: Path
    pod_uid: str = ""
    """The UID of its pod; empty if unknown."""
    record: HandOverRecord | None = None
    """The hand-over record; None in specs from before agents wrote one."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables that it adds to a container."""
    trouble: str = ""
    """Why it cannot be read."""

    @property
    def promised(self) -> str:
        return f"{KIND}={self.path.stem.removeprefix(_PREFIX)}"


class _Edits(msgspec.Struct):
    env: list[str] = []


class _Device(msgspec.Struct):
    edits: _Edits = msgspec.field(name="containerEdits", default_factory=_Edits)


class _Written(msgspec.Struct):
    annotations: dict[str, str] = {}
    devices: list[_Device] = []


class SpecFolder:
    """The folder from which the container runtime reads CDI specs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prepare(self) -> None:
        """Create the folder. Raises BadConfig if that fails or the folder is not writable."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for left_over in self._folder.glob(f"{_TEMPORARY}*"):
                left_over.unlink(missing_ok=True)
        except OSError as error:
            raise BadConfig(f"the CDI folder {self._folder} cannot be used: {error.strerror}") from error

    def write(self, promised: str, owner: HandOverRecord, edits: ContainerEdits) -> bool:
        """Write the spec of a promised name. Returns False if it exists already, as after a restart."""
        name = promised.removeprefix(f"{KIND}=")
        if not _NAME.fullmatch(name):
            raise Refused(f"{promised!r} is no CDI name that this agent gives")
        path = self._folder / f"{_PREFIX}{name}.json"
        content = msgspec.json.format(msgspec.json.encode(_spec(name, owner, edits)))
        try:
            if path.exists() and _content(path) == content:
                return False
            _replace(path, self._folder / f"{_TEMPORARY}{name}-{secrets.token_hex(4)}", content)
        except OSError as error:
            raise Refused(f"the CDI spec {path} cannot be written: {error.strerror}") from error
        return True

    def read(self) -> list[CdiSpec]:
        """Every spec of this agent. Specs that cannot be read say why in `trouble`."""
        return [_read(path) for path in sorted(self._folder.glob(f"{_PREFIX}*.json"))]

    def remove(self, spec: CdiSpec) -> None:
        """Remove a spec. If that fails, the spec stays and the log says so."""
        try:
            spec.path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("cannot remove a CDI spec", path=str(spec.path), error=error.strerror)


def _spec(name: str, owner: HandOverRecord, edits: ContainerEdits) -> dict[str, Any]:
    return {
        "cdiVersion": _VERSION_WITH_GROUPS if edits.groups else _VERSION,
        "kind": KIND,
        "annotations": {_POD_UID: owner.uid, _HANDED: handover_record.write(owner)},
        "devices": [{"name": name, "containerEdits": _container_edits(edits)}],
    }


def _container_edits(edits: ContainerEdits) -> dict[str, Any]:
    written = {
        "env": [f"{key}={value}" for key, value in sorted(edits.environment.items())],
        "deviceNodes": [_device_node(node) for node in edits.device_nodes],
    }
    more = {
        "mounts": [_mount(mount) for mount in edits.mounts],
        "hooks": [_hook(hook) for hook in edits.hooks],
        "additionalGids": list(edits.groups),
    }
    return written | {name: listed for name, listed in more.items() if listed}


def _device_node(node: DeviceNode) -> dict[str, Any]:
    optional = {
        "type": node.kind or None,
        "major": node.major,
        "minor": node.minor,
        "fileMode": node.mode,
        "permissions": node.permissions or None,
        "uid": node.uid,
        "gid": node.gid,
    }
    return {"path": node.path, "hostPath": node.host_path, **_given(optional)}


def _mount(mount: Mount) -> dict[str, Any]:
    optional = {"options": list(mount.options) or None, "type": mount.kind or None}
    return {"hostPath": mount.host_path, "containerPath": mount.container_path, **_given(optional)}


def _hook(hook: Hook) -> dict[str, Any]:
    optional = {
        "args": list(hook.arguments) or None,
        "env": list(hook.environment) or None,
        "timeout": hook.timeout,
    }
    return {"hookName": hook.stage, "path": hook.path, **_given(optional)}


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _replace(path: Path, temporary: Path, content: bytes) -> None:
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _content(path: Path) -> bytes:
    """What is in a spec. Raises OSError, also if it is something that could be read without end."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        seen = os.fstat(file.fileno())
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > LARGEST_OWN_SPEC:
            raise OSError(errno.EINVAL, "it is no CDI spec of ours")
        return file.read()


def _read(path: Path) -> CdiSpec:
    try:
        written = msgspec.json.decode(_content(path), type=_Written)
        uid, text = written.annotations.get(_POD_UID, ""), written.annotations.get(_HANDED)
        owner = handover_record.read(text) if text is not None else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadRecord) as error:
        return CdiSpec(path, trouble=str(error))
    if not uid or (owner is not None and owner.uid != uid):
        return CdiSpec(path, trouble="it does not name its pod")
    variables = (line.partition("=") for device in written.devices for line in device.edits.env)
    return CdiSpec(path, uid, owner, {name: value for name, _, value in variables})
