"""CDI specs that NVIDIA's own programs have written: what a container needs for a card, as they found it out.

`nvidia-ctk cdi generate` and its systemd service write `nvidia.com/gpu`, NVIDIA's device plugin writes
`k8s.device-plugin.nvidia.com/gpu`. Both have a device for each card. The GPU Operator's toolkit writes
`management.nvidia.com/gpu`, which has one device with every card: of that one only the part that all devices have in
common is of use.

A spec may be older than the last reboot, and cards change their numbers. So a device counts only if its device nodes
are those that the driver names now.
"""

import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import structlog
from msgspec import Meta, field

from aliquot.agent.devices import ContainerEdits, DeviceNode, Hook, Mount
from aliquot.config import yaml_text
from aliquot.errors import BadConfig
from aliquot.model import Gpu
from aliquot.model.bounds import LARGEST_VENDOR_SPEC, MAX_VENDOR_VALUES
from aliquot.plain import why

_log = structlog.get_logger()

FOLDERS = ("/etc/cdi", "/run/cdi")
"""Where container runtimes and NVIDIA's programs keep specs. They call the second one /var/run/cdi, a link that may be
absolute and so lead elsewhere below a host root."""
_MANAGEMENT = "management.nvidia.com/gpu"
_KINDS = ("nvidia.com/gpu", "k8s.device-plugin.nvidia.com/gpu", _MANAGEMENT)
"""The specs that are used, the best first."""
_SUFFIXES = (".json", ".yaml")
_NAME = "*nvidia*"
"""Every program of NVIDIA's, and every guide, has this in the names of its specs. Other specs are not opened."""
_CARD_NODE = re.compile(r"nvidia(\d+)")
_NOT_TAKEN = ("NVIDIA_VISIBLE_DEVICES",)
"""The dialect's variable, and the rule for NVIDIA's container runtime, say what it is."""

_Path = Annotated[str, Meta(pattern="^/")]
_Id = Annotated[int, Meta(ge=0, lt=2**32)]


class _DeviceNode(msgspec.Struct, rename="camel"):
    path: _Path
    host_path: str = ""
    type: Literal["", "b", "c", "u", "p"] = ""
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    permissions: Annotated[str, Meta(pattern="^([rwm]*|none)$")] = ""
    uid: _Id | None = None
    gid: _Id | None = None


class _Mount(msgspec.Struct, rename="camel"):
    host_path: _Path
    container_path: _Path
    options: list[str] = []
    type: str = ""


class _Hook(msgspec.Struct, rename="camel"):
    hook_name: Literal["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"]
    path: _Path
    args: list[str] = []
    env: list[Annotated[str, Meta(pattern="^[^=]+=")]] = []
    timeout: int | None = None


class _Edits(msgspec.Struct, rename="camel"):
    env: list[Annotated[str, Meta(pattern="^[^=]+=")]] = []
    device_nodes: list[_DeviceNode] = []
    mounts: list[_Mount] = []
    hooks: list[_Hook] = []
    additional_gids: list[_Id] = []

    def edits(self) -> ContainerEdits:
        variables = (line.partition("=") for line in self.env)
        return ContainerEdits(
            {name: value for name, _, value in variables if name not in _NOT_TAKEN},
            tuple(map(_device_node, self.device_nodes)),
            tuple(map(_mount, self.mounts)),
            tuple(map(_hook, self.hooks)),
            tuple(self.additional_gids),
        )

    def card_minors(self) -> set[int]:
        """The minor numbers of the cards whose device nodes these are."""
        return set(chain.from_iterable(map(_card_minors, self.device_nodes)))


class _Device(msgspec.Struct, rename="camel"):
    name: str
    container_edits: _Edits


class _Spec(msgspec.Struct, rename="camel"):
    kind: str
    devices: list[_Device] = []
    container_edits: _Edits = field(default_factory=_Edits)

    def edits(self, gpus: Sequence[Gpu]) -> ContainerEdits | None:
        """What a container with these cards needs, None if the spec does not know one of them."""
        common = self.container_edits.edits()
        if self.kind == _MANAGEMENT:
            return common
        devices = [self._device(gpu) for gpu in gpus]
        if None in devices:
            return None
        return sum((device.container_edits.edits() for device in devices if device), start=common)

    def _device(self, gpu: Gpu) -> _Device | None:
        names = (gpu.uuid,) if gpu.parent else (gpu.uuid, str(gpu.index), f"gpu{gpu.index}")
        named = {device.name: device for device in self.devices if device.container_edits.card_minors() == {gpu.minor}}
        return next((named[name] for name in names if name in named), None)


def _card_minors(node: _DeviceNode) -> Iterator[int]:
    for path in filter(None, (node.path, node.host_path)):
        if match := _CARD_NODE.fullmatch(path.rpartition("/")[2]):
            yield int(match[1])
            if node.minor is not None:
                yield node.minor


def _device_node(node: _DeviceNode) -> DeviceNode:
    return DeviceNode(
        node.path,
        node.host_path or node.path,
        node.type,
        node.major,
        node.minor,
        node.file_mode,
        node.permissions,
        node.uid,
        node.gid,
    )


def _mount(mount: _Mount) -> Mount:
    return Mount(mount.container_path, mount.host_path, tuple(mount.options), mount.type)


def _hook(hook: _Hook) -> Hook:
    return Hook(hook.hook_name, hook.path, tuple(hook.args), tuple(hook.env), hook.timeout)


@dataclass(frozen=True)
class _Version:
    """A file as it was at some time."""

    path: Path
    inode: int
    size: int
    changed: int


class ToolkitSpecs:
    """The specs in these folders, as they were at the last `read`. `host_root` is where this process sees the host."""

    def __init__(self, folders: Iterable[Path], host_root: Path = Path("/")) -> None:
        self._folders = tuple(dict.fromkeys(folder.resolve() for folder in folders))
        self._host_root = host_root
        self._read: dict[_Version, _Spec | None] = {}
        self._stale: set[_Version] = set()

    @property
    def used(self) -> tuple[Path, ...]:
        """The files, the best first."""
        return tuple(version.path for version, _ in self._best_first())

    def read(self) -> None:
        """Read the specs that have changed. May take a moment."""
        self._read = {version: self._known(version) for version in self._versions()}

    def edits(self, gpus: Sequence[Gpu]) -> ContainerEdits | None:
        """What a container with these cards needs, by the best spec that knows all of them, or None."""
        for version, spec in self._best_first():
            edits = spec.edits(gpus)
            if edits is not None and not self._is_stale(version, edits):
                return edits
        return None

    def _best_first(self) -> list[tuple[_Version, _Spec]]:
        specs = [(version, spec) for version, spec in self._read.items() if spec is not None]
        return sorted(specs, key=lambda each: _KINDS.index(each[1].kind))

    def _known(self, version: _Version) -> _Spec | None:
        if version in self._read:
            return self._read[version]
        try:
            return _parsed(version.path)
        except BadConfig as error:
            _log.warning("a CDI spec of the NVIDIA container toolkit is not used", why=str(error))
            return None

    def _is_stale(self, version: _Version, edits: ContainerEdits) -> bool:
        """Whether files that the spec mounts are gone, as after an update of the driver: a container would not start.
        If none is there, this process does not see the host's files, and takes them on trust."""
        missing = [mount.host_path for mount in edits.mounts if not self._exists(mount)]
        if len(missing) in (0, len(edits.mounts)):
            return False
        if version not in self._stale:
            self._stale.add(version)
            _log.warning(
                "a CDI spec of the NVIDIA container toolkit names files that are gone, and is not used",
                spec=str(version.path),
                missing=missing[0],
                what="generate it again: nvidia-ctk cdi generate",
            )
        return True

    def _exists(self, mount: Mount) -> bool:
        return (self._host_root / mount.host_path.lstrip("/")).exists()

    def _versions(self) -> Iterator[_Version]:
        for path in chain.from_iterable(sorted(folder.glob(_NAME)) for folder in self._folders):
            try:
                seen = path.stat()
            except OSError:
                continue  # it went, or leads nowhere
            if path.suffix in _SUFFIXES and stat.S_ISREG(seen.st_mode):
                yield _Version(path, seen.st_ino, seen.st_size, seen.st_mtime_ns)


def _parsed(path: Path) -> _Spec | None:
    """The spec, None if it is of a kind that is of no use here. Raises BadConfig."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_VENDOR_SPEC + 1)
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path} cannot be read: {why(error)}") from error
    tree = yaml_text.parse(text, str(path), LARGEST_VENDOR_SPEC, MAX_VENDOR_VALUES)
    if not isinstance(tree, dict) or tree.get("kind") not in _KINDS:
        return None
    try:  # what has no form in JSON could not be written into a spec of ours
        spec = msgspec.json.decode(msgspec.json.encode(tree), type=_Spec)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise BadConfig(f"{path} is not a CDI spec: {error}") from error
    if minors := spec.container_edits.card_minors():
        cards = ", ".join(f"nvidia{minor}" for minor in sorted(minors))
        raise BadConfig(f"{path} would give {cards} to every container")
    return spec
