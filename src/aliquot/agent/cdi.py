"""CDI specs: what the container runtime adds to a container that asks for a promised name.

containerd reads the folder only when inotify tells of a write or a rename inside it, and a name whose file is replaced
can be served with its old content. So a name is used once, its file is written beside and renamed, and whoever promised
it waits a moment before the runtime is let go.

A spec also carries what its pod has got from this node, which the agent reads back when it starts.
"""

import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog

from aliquot.agent import handed
from aliquot.agent.handed import Handed
from aliquot.errors import BadConfig, BadRecord, Refused

_log = structlog.get_logger()

KIND = "aliquot.io/gpu"
_VERSION = "0.6.0"
_POD_UID = "aliquot.io/pod-uid"
_HANDED = "aliquot.io/handed-over"
_CARDS = "NVIDIA_VISIBLE_DEVICES="
_PREFIX = "aliquot.io-gpu_"
_TEMPORARY = ".aliquot-"
_CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


def promise(ids: Iterable[str]) -> str:
    """A device name for an Allocate, unlike any other: the ids alone come back when they are handed out again."""
    digest = hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()
    return f"{KIND}={digest[:16]}-{secrets.token_hex(4)}"


def is_ours(promised: str) -> bool:
    return promised.startswith(f"{KIND}=")


@dataclass(frozen=True)
class Edits:
    """What a container gets; without cards no device at all, not even those that all cards share."""

    environment: Mapping[str, str]
    minors: tuple[int, ...]


@dataclass(frozen=True)
class Spec:
    """A spec of ours as it lies in the folder."""

    path: Path
    pod_uid: str = ""
    """Of the pod for which it was written; none if it cannot be told."""
    handed: Handed | None = None
    """What the pod has got; None in specs of agents that did not write it down yet."""
    uuids: frozenset[str] = frozenset()
    """The cards that its variables name."""
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


class Folder:
    """The folder that the runtime reads; `devices` is where this machine's device nodes are."""

    def __init__(self, folder: Path, devices: Path = Path("/dev")) -> None:
        self._folder = folder
        self._devices = devices

    def prepare(self) -> None:
        """Raises BadConfig if the folder cannot be made or written to."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for left_over in self._folder.glob(f"{_TEMPORARY}*"):
                left_over.unlink(missing_ok=True)
        except OSError as error:
            raise BadConfig(f"the CDI folder {self._folder} cannot be used: {error.strerror}") from error

    def write(self, promised: str, owner: Handed, edits: Edits) -> bool:
        """Write the spec of a promised name. Returns False if it stands there already, as after a restart."""
        name = promised.removeprefix(f"{KIND}=")
        path = self._folder / f"{_PREFIX}{name}.json"
        content = msgspec.json.format(msgspec.json.encode(self._spec(name, owner, edits)))
        if path.exists() and path.read_bytes() == content:
            return False
        try:
            _replace(path, self._folder / f"{_TEMPORARY}{name}", content)
        except OSError as error:
            raise Refused(f"the CDI spec {path} cannot be written: {error.strerror}") from error
        return True

    def read(self) -> list[Spec]:
        """Every spec of ours, also those that cannot be read, with the reason."""
        return [_read(path) for path in sorted(self._folder.glob(f"{_PREFIX}*.json"))]

    def remove(self, spec: Spec) -> None:
        """One that cannot be removed stays, with a word in the log."""
        try:
            spec.path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("cannot tidy up a CDI spec", path=str(spec.path), error=error.strerror)

    def _spec(self, name: str, owner: Handed, edits: Edits) -> dict[str, Any]:
        variables = [f"{key}={value}" for key, value in sorted(edits.environment.items())]
        return {
            "cdiVersion": _VERSION,
            "kind": KIND,
            "annotations": {_POD_UID: owner.uid, _HANDED: handed.write(owner)},
            "devices": [{"name": name, "containerEdits": {"env": variables, "deviceNodes": self._nodes(edits)}}],
        }

    def _nodes(self, edits: Edits) -> list[dict[str, str]]:
        if not edits.minors:
            return []
        cards = [f"nvidia{minor}" for minor in edits.minors]
        for card in cards:
            if not (self._devices / card).exists():
                raise Refused(f"the device node {self._devices / card} is missing: is the driver loaded?")
        names = cards + [name for name in _CONTROL_NODES if (self._devices / name).exists()]
        return [{"path": f"/dev/{name}", "hostPath": str(self._devices / name)} for name in names]


def _replace(path: Path, temporary: Path, content: bytes) -> None:
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


def _read(path: Path) -> Spec:
    try:
        written = msgspec.json.decode(path.read_bytes(), type=_Written)
        uid, record = written.annotations.get(_POD_UID, ""), written.annotations.get(_HANDED)
        owner = handed.read(record) if record is not None else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadRecord) as error:
        return Spec(path, trouble=str(error))
    if not uid or (owner is not None and owner.uid != uid):
        return Spec(path, trouble="it does not say of which pod it is")
    variables = (line for device in written.devices for line in device.edits.env if line.startswith(_CARDS))
    uuids = frozenset(uuid for line in variables for uuid in line.removeprefix(_CARDS).split(",") if uuid)
    return Spec(path, uid, owner, uuids)
