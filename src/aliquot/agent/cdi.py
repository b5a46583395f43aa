"""CDI specs: what the container runtime adds to a container that asks for a promised name.

containerd reads the folder only when inotify tells of a write or a rename inside it, and a name whose file is replaced
can be served with its old content. So a name is used once, its file is written beside and renamed, and whoever promised
it waits a moment before the runtime is let go.
"""

import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog

from aliquot.errors import BadConfig, Refused

_log = structlog.get_logger()

KIND = "aliquot.io/gpu"
_VERSION = "0.6.0"
_POD_UID = "aliquot.io/pod-uid"
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


class _SpecAnnotations(msgspec.Struct):
    annotations: dict[str, str] = {}


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

    def write(self, promised: str, pod_uid: str, edits: Edits) -> bool:
        """Write the spec of a promised name. Returns False if it stands there already, as after a restart."""
        name = promised.removeprefix(f"{KIND}=")
        path = self._folder / f"{_PREFIX}{name}.json"
        content = msgspec.json.format(msgspec.json.encode(self._spec(name, pod_uid, edits)))
        if path.exists() and path.read_bytes() == content:
            return False
        try:
            _replace(path, self._folder / f"{_TEMPORARY}{name}", content)
        except OSError as error:
            raise Refused(f"the CDI spec {path} cannot be written: {error.strerror}") from error
        return True

    def remove_all_but(self, pod_uids: Set[str]) -> int:
        """Remove the specs of pods that are gone; returns how many. What cannot be read or removed stays."""
        removed = 0
        for path in self._folder.glob(f"{_PREFIX}*.json"):
            try:
                if _owner(path) not in pod_uids:
                    path.unlink(missing_ok=True)
                    removed += 1
            except OSError as error:
                _log.warning("cannot tidy up a CDI spec", path=str(path), error=error.strerror)
        return removed

    def _spec(self, name: str, pod_uid: str, edits: Edits) -> dict[str, Any]:
        variables = [f"{key}={value}" for key, value in sorted(edits.environment.items())]
        return {
            "cdiVersion": _VERSION,
            "kind": KIND,
            "annotations": {_POD_UID: pod_uid},
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


def _owner(path: Path) -> str:
    """The pod that a spec was written for; none if it is not one of ours. Raises OSError."""
    content = path.read_bytes()
    try:
        return msgspec.json.decode(content, type=_SpecAnnotations).annotations.get(_POD_UID, "")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
